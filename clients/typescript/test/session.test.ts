/** The outputs of a session for each input. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Play } from "./play.js";

const register = (address: string, key: number | null = null) => ({ kind: "register", key, registration: { address } }) as const;
const subscribe = (topic: string, key: number, after: { epoch: number; seq: number } | null = null) =>
  ({ kind: "subscribe", key, topic, after }) as const;
const cut = (code = 1006) => ({ kind: "closed", code, reason: "" }) as const;

describe("connecting", () => {
  test("a session opens a socket, greets, and says when it is connected", () => {
    const play = new Play({ capabilities: ["chat"] });
    play.expect({ kind: "start" }, "open");
    play.expect({ kind: "opened", token: "t" }, "send hub:connect");
    assert.deepEqual(play.last["payload"], { protocolVersion: "0.1.0", acks: "together", capabilities: ["chat"], token: "t" });
    assert.deepEqual(play.greet(), ["event connected"]);
    assert.equal(play.session.address, "@(session/s)");
  });

  test("addresses are registered before subscriptions, and both before waiting calls", () => {
    const play = new Play();
    play.put(register("@(a)"));
    play.put(subscribe("news", 1));
    play.ask(2);
    play.open();
    assert.deepEqual(play.greet(), ["send hub:register @(a)", "send hub:subscribe news"]);
    assert.deepEqual(play.registered("@(a)"), ["event registered", "event connected", "send hub:send 2"]);
    assert.equal(play.last["from"], "@(a)");
  });

  test("a connection without an answer is abandoned and retried", () => {
    const play = new Play();
    play.open();
    assert.deepEqual(play.wake(), ["shut", "event disconnected"]);
    assert.deepEqual(play.wake(), ["open"]);
  });

  test("another version is final", () => {
    const play = new Play();
    play.ask(1);
    play.open();
    const lines = play.hub("hub:error", { code: "version_mismatch", message: "no" }, play.id("hub:connect"));
    assert.deepEqual(lines, ["shut", "reject 1 version_mismatch", "event disconnected", "ended"]);
    play.expect({ kind: "call", key: 2, call: { type: "x", payload: 1, pattern: "ask" } }, "reject 2 closed");
  });

  test("a session that cannot be resumed is replaced by a new one", () => {
    const play = new Play();
    play.connect();
    play.put(cut());
    play.wake();
    play.put({ kind: "opened", token: null });
    assert.deepEqual((play.last["payload"] as { resume: unknown }).resume, { sessionId: "secret" });
    const refused = play.hub("hub:error", { code: "invalid_message", message: "no" }, play.id("hub:connect"));
    assert.deepEqual(refused, ["event error", "shut", "event disconnected"]);
    play.wake();
    play.put({ kind: "opened", token: null });
    assert.equal((play.last["payload"] as { resume: unknown }).resume, undefined);
  });

  test("only the hub can say that it is the hub", () => {
    const play = new Play();
    play.connect();
    play.ask(1);
    const lines = play.frame({ from: "@(evil)", to: "@(session/s)", type: "hub:pause", payload: {}, correlationId: null });
    assert.deepEqual(lines, ["message hub:pause"]);
    assert.deepEqual(play.tell(2), ["send hub:send 2", "resolve 2"]);
  });
});

describe("coming back", () => {
  const cases: [code: number, freshTokens: boolean, lines: string[], ms: number | null][] = [
    [1001, false, ["event disconnected"], 0],
    [1006, false, ["event disconnected"], 100],
    [1011, false, ["event disconnected"], 100],
    [4002, false, ["event disconnected"], 100],
    [4003, false, ["event disconnected"], 100],
    [4001, true, ["event disconnected"], 100],
    [4001, false, ["event disconnected", "ended"], null],
    [1000, false, ["event disconnected", "ended"], null],
    [1009, false, ["event disconnected", "ended"], null],
    [4000, false, ["event disconnected", "ended"], null],
    [4004, false, ["event disconnected", "ended"], null],
  ];
  for (const [code, freshTokens, lines, ms] of cases) {
    test(`after ${code}${freshTokens ? " with fresh tokens" : ""}: ${ms === null ? "never" : `in ${ms} ms`}`, () => {
      const play = new Play({ freshTokens });
      play.connect();
      assert.deepEqual(play.put(cut(code)), lines);
      assert.equal(play.session.wakeAt, ms === null ? Infinity : play.now + ms);
    });
  }

  test("the backoff doubles up to half a minute, and is reset by a stable connection", () => {
    const play = new Play();
    play.put({ kind: "start" });
    const waits: number[] = [];
    for (let i = 0; i < 11; i++) {
      play.put(cut());
      waits.push(play.session.wakeAt - play.now);
      play.wake();
    }
    assert.deepEqual(waits, [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
    play.put({ kind: "opened", token: null });
    play.greet();
    play.after(6_000);
    play.put(cut());
    assert.equal(play.session.wakeAt - play.now, 100);
  });

  test("half of the backoff is random", () => {
    const play = new Play({ random: () => 0 });
    play.connect();
    play.put(cut());
    assert.equal(play.session.wakeAt - play.now, 50);
  });

  test("a rejected token is not used again", () => {
    const play = new Play({ freshTokens: true });
    play.put({ kind: "start" });
    play.put({ kind: "opened", token: "old" });
    play.hub("hub:unauthorized", { message: "no" }, play.id("hub:connect"));
    play.put(cut(4001));
    play.wake();
    play.expect({ kind: "opened", token: "old" }, "shut", "event disconnected", "ended");

    const other = new Play({ freshTokens: true });
    other.put({ kind: "start" });
    other.put({ kind: "opened", token: "old" });
    other.put(cut(4001));
    other.wake();
    other.expect({ kind: "opened", token: "new" }, "send hub:connect");
  });

  test("everything is restored: session, addresses, subscriptions, then asks in order with the same id and a higher attempt", () => {
    const play = new Play();
    play.put(register("@(a)"));
    play.open();
    play.greet();
    play.registered("@(a)");
    play.put(subscribe("news", 1));
    play.hub("hub:subscribed", { topic: "news", subscriptionId: "s", epoch: 7, seq: 4 }, play.id("hub:subscribe"));
    play.topic("news", 5);
    play.ask(2);
    const first = play.id("hub:send");
    play.ask(3);
    play.put(cut());
    play.tell(4);
    play.wake();
    play.put({ kind: "opened", token: null });
    assert.deepEqual(play.greet({ resumed: true }), ["send hub:register @(a)", "send hub:subscribe news"]);
    assert.deepEqual(play.last["payload"], { topic: "news", after: { epoch: 7, seq: 5 } });
    const lines = play.registered("@(a)", 2);
    assert.deepEqual(lines, ["event registered", "event connected", "send hub:send 2", "send hub:send 3", "send hub:send 4", "resolve 4"]);
    const again = play.sent.at(-3)!;
    assert.equal(again["id"], first);
    assert.deepEqual(again["metadata"], { attemptNumber: 2 });
    assert.deepEqual(play.delivered(first), ["resolve 2"]);
  });
});

describe("asks", () => {
  test("a combined acknowledgement equals one acknowledgement per ask", () => {
    const play = new Play();
    play.connect();
    assert.equal((play.sent[0]!["payload"] as Record<string, unknown>)["acks"], "together");
    const ids = [1, 2, 3].map((key) => {
      play.ask(key);
      return play.id("hub:send");
    });
    const told = { status: "delivered", deliveredAt: 5, messageIds: [ids[0], ids[2], "another's"] };
    assert.deepEqual(play.hub("hub:delivery_acks", told), ["resolve 1", "resolve 3"]);
    assert.deepEqual(play.hub("hub:delivery_acks", told), [], "a settled call needs no other answer");
    assert.deepEqual(play.hub("hub:delivery_acks", { messageIds: ids[1] }), [], "what cannot be read answers nothing");
    assert.deepEqual(play.delivered(ids[1]!), ["resolve 2"]);
  });

  test("an ask is repeated with the same id, three times 30 s with waits between, then fails", () => {
    const play = new Play();
    play.connect();
    play.ask(1);
    const began = play.now;
    const seen: [number, string][] = [[0, "send hub:send 1"]];
    for (let i = 0; i < 40 && seen.at(-1)![1] !== "reject 1 timeout"; i++) {
      for (const line of play.wake()) {
        if (line.includes("heartbeat")) play.hub("hub:heartbeat_ack");
        else seen.push([play.now - began, line]);
      }
    }
    assert.deepEqual(seen, [
      [0, "send hub:send 1"],
      [31_000, "send hub:send 1"],
      [63_000, "send hub:send 1"],
      [93_000, "reject 1 timeout"],
    ]);
    const asks = play.sent.filter((frame) => frame["type"] === "hub:send");
    assert.equal(new Set(asks.map((frame) => frame["id"])).size, 1);
    assert.equal(new Set(asks.map((frame) => frame["timestamp"])).size, 1);
    assert.deepEqual(asks.map((frame) => (frame["metadata"] as { attemptNumber: number }).attemptNumber), [1, 2, 3]);
  });

  test("an ask without a connection fails in the same time", () => {
    const play = new Play();
    play.put({ kind: "start" });
    play.ask(1);
    const began = play.now;
    let lines: string[] = [];
    while (!lines.includes("reject 1 timeout")) lines = play.wake();
    assert.equal(play.now - began, 93_000);
  });

  const refusals: [type: string, payload: object, lines: string[]][] = [
    ["hub:unknown_actor", { actorAddress: "@(b)" }, ["reject 1 unknown_actor"]],
    ["hub:unauthorized", {}, ["reject 1 unauthorized"]],
    ["hub:error", { code: "message_expired" }, ["reject 1 message_expired"]],
    ["hub:error", { code: "timeout", retryable: true }, ["reject 1 timeout"]],
    ["hub:error", { code: "queue_full", retryable: true }, []],
    ["hub:error", { code: "internal_error", retryable: true }, []],
    ["hub:rate_limited", { retryAfter: 40, retryable: true }, []],
  ];
  for (const [type, payload, lines] of refusals) {
    test(`${type} ${JSON.stringify(payload)} → ${lines.join() || "tried again"}`, () => {
      const play = new Play();
      play.connect();
      play.ask(1);
      assert.deepEqual(play.hub(type, payload, play.id("hub:send")), lines);
      if (lines.length > 0) return;
      const wait = play.session.wakeAt - play.now;
      assert.equal(wait, type === "hub:rate_limited" ? 40 : 1_000);
      assert.deepEqual(play.wake(), ["send hub:send 1"]);
    });
  }

  test("a queue that stays full fails the third attempt", () => {
    const play = new Play();
    play.connect();
    play.ask(1);
    const full = () => play.hub("hub:error", { code: "queue_full", retryable: true }, play.id("hub:send"));
    assert.deepEqual(full(), []);
    assert.deepEqual(play.after(1_000), ["send hub:send 1"]);
    assert.deepEqual(full(), []);
    assert.deepEqual(play.after(2_000), ["send hub:send 1"]);
    assert.deepEqual(full(), ["reject 1 queue_full"]);
  });

  test("a rate limit holds back everything until its time", () => {
    const play = new Play();
    play.connect();
    play.ask(1);
    play.hub("hub:rate_limited", { retryAfter: 500 }, play.id("hub:send"));
    assert.deepEqual(play.tell(2), []);
    assert.deepEqual(play.after(499), []);
    assert.deepEqual(play.after(1), ["send hub:send 1", "send hub:send 2", "resolve 2"]);
  });

  test("a request is resolved by the reply, not by the acknowledgement", () => {
    const play = new Play();
    play.connect();
    play.ask(1, { expectReply: true });
    const id = play.id("hub:send");
    assert.deepEqual(play.delivered(id), []);
    assert.deepEqual(play.frame({ from: "@(b)", to: "@(session/s)", type: "done", payload: 2, correlationId: id }), ["resolve 1"]);
    assert.deepEqual(play.frame({ from: "@(b)", to: "@(session/s)", type: "done", payload: 2, correlationId: id }), []);
  });

  test("a request whose reply does not come fails, by the hub or else by itself", () => {
    const play = new Play();
    play.connect();
    play.ask(1, { expectReply: true });
    play.delivered(play.id("hub:send"));
    assert.deepEqual(play.hub("hub:error", { code: "timeout", retryable: true }, play.id("hub:send")), ["reject 1 timeout"]);
    play.ask(2, { expectReply: true, ttl: 2_000 });
    play.delivered(play.id("hub:send"));
    assert.deepEqual(play.after(6_999), []);
    assert.deepEqual(play.after(1), ["reject 2 timeout"]);
  });

  test("a message that waited longer than its ttl is not sent", () => {
    const play = new Play();
    play.tell(1, { ttl: 5_000 });
    play.now += 5_001;
    play.open();
    assert.deepEqual(play.greet(), ["event connected", "reject 1 message_expired"]);
  });

  test("a message that the hub would not read is not sent", () => {
    const play = new Play();
    play.connect();
    assert.deepEqual(play.tell(1, { payload: { to: "@(b)", type: "note", data: "ä".repeat(5_000) } }), ["reject 1 message_too_large"]);
    assert.deepEqual(play.tell(2, { payload: { to: "@(b)", type: "note", data: "a".repeat(5_000) } }).map((line) => line.slice(0, 13)), ["send hub:send", "resolve 2"]);
  });

  test("a value that JSON cannot express is rejected", () => {
    const play = new Play();
    play.connect();
    assert.deepEqual(play.tell(1, { payload: 1n }), ["reject 1 invalid_call"]);
  });

  test("the error of a tell is an event", () => {
    const play = new Play();
    play.connect();
    play.tell(1);
    assert.deepEqual(play.hub("hub:unauthorized", {}, play.id("hub:send")), ["event error"]);
  });
});

describe("the buffer", () => {
  test("holds the maximum number of messages, and no more until some are settled", () => {
    const play = new Play({ bufferMessages: 2 });
    play.ask(1);
    play.tell(2);
    const another = { type: "hub:send", payload: 1, pattern: "tell" } as const;
    assert.deepEqual(play.tell(3), ["reject 3 buffer_full"]);
    assert.equal(play.session.hasRoomFor(another), false);
    play.open();
    assert.deepEqual(play.greet(), ["event connected", "send hub:send 1", "send hub:send 2", "resolve 2"]);
    assert.equal(play.session.hasRoomFor(another), true);
  });

  test("holds the maximum number of bytes, and always one message", () => {
    const play = new Play({ bufferBytes: 2_000 });
    play.tell(1, { payload: "x".repeat(5_000) });
    assert.deepEqual(play.tell(2), ["reject 2 buffer_full"]);
    const other = new Play({ bufferBytes: 2_000 });
    assert.deepEqual(other.tell(1, { payload: "x".repeat(900) }), []);
    assert.deepEqual(other.tell(2, { payload: "x".repeat(900) }), ["reject 2 buffer_full"]);
    assert.equal(other.session.hasRoomFor({ type: "hub:send", payload: "x".repeat(900), pattern: "tell" }), false);
    assert.equal(other.session.hasRoomFor({ type: "hub:send", payload: "x", pattern: "tell" }), true);
  });

  test("keeps frames that the socket has no room for, in order", () => {
    const play = new Play();
    play.connect();
    play.room = 0;
    assert.deepEqual(play.tell(1), []);
    assert.equal(play.session.isCrowded, true);
    assert.deepEqual(play.tell(2), []);
    play.room = 1;
    assert.deepEqual(play.put({ kind: "tick" }), ["send hub:send 1", "resolve 1"]);
    play.room = 1_000;
    assert.deepEqual(play.put({ kind: "tick" }), ["send hub:send 2", "resolve 2"]);
    assert.equal(play.session.isCrowded, false);
  });
});

describe("pausing", () => {
  test("only heartbeats and acks are sent until the hub resumes the client", () => {
    const play = new Play();
    play.connect();
    play.frame({ from: "@(b)", to: "@(session/s)", type: "job", payload: 1, metadata: { requireAck: true } });
    assert.deepEqual(play.hub("hub:pause", { reason: "outbound_queue_full", address: "@(b)" }), ["event paused"]);
    assert.deepEqual(play.ask(1), []);
    assert.deepEqual(play.tell(2), []);
    play.expect({ kind: "acknowledge", id: "h-2", from: "@(session/s)" }, "send hub:ack h-2");
    assert.ok(play.session.wakeAt - play.now >= 29_000, "a pause is not polled");
    assert.deepEqual(play.hub("hub:resume"), ["event resumed", "send hub:send 1", "send hub:send 2", "resolve 2"]);
  });

  test("a new connection is not paused", () => {
    const play = new Play();
    play.connect();
    play.hub("hub:pause", { address: "@(b)" });
    play.ask(1);
    play.put(cut());
    play.wake();
    play.put({ kind: "opened", token: null });
    assert.deepEqual(play.greet(), ["event connected", "send hub:send 1"]);
  });
});

describe("life", () => {
  test("a heartbeat is sent each interval; after three intervals without a frame the connection is abandoned", () => {
    const play = new Play();
    play.connect();
    assert.deepEqual(play.after(30_000), ["send hub:heartbeat"]);
    assert.deepEqual(play.after(30_000), ["send hub:heartbeat"]);
    assert.deepEqual(play.after(30_000), ["send hub:heartbeat"]);
    assert.deepEqual(play.after(1), ["shut", "event disconnected"]);
  });

  test("any frame is a sign of life", () => {
    const play = new Play();
    play.connect();
    for (let i = 0; i < 10; i++) {
      assert.deepEqual(play.after(30_000), ["send hub:heartbeat"]);
      play.put({ kind: "frame", text: '{"type":"pong"}' });
    }
  });
});

describe("leases", () => {
  test("a lease is renewed at a third of its time, by the hub's clock", () => {
    const play = new Play();
    play.connect();
    play.expect(register("@(a)", 1), "send hub:register @(a)");
    const expiresAt = 5_000_000 + 30_000; // the hub's clock is another
    const answer = { from: "@(hub)", to: "@(session/s)", type: "hub:registered", timestamp: 5_000_000, correlationId: play.id("hub:register") };
    assert.deepEqual(play.frame({ ...answer, payload: { actorAddress: "@(a)", expiresAt, renewalToken: "r", version: 3 } }), ["event registered", "resolve 1"]);
    assert.deepEqual(play.after(9_999), []);
    assert.deepEqual(play.after(1), ["send hub:renew r"]);
    const renewed = { ...answer, type: "hub:renewed", correlationId: play.id("hub:renew"), payload: { actorAddress: "@(a)", expiresAt, version: 3 } };
    assert.deepEqual(play.frame(renewed), []);
    assert.deepEqual(play.after(10_000), ["send hub:renew r"]);
  });

  test("a lease that cannot be renewed is registered again", () => {
    const play = new Play();
    play.connect();
    play.put(register("@(a)", 1));
    play.registered("@(a)");
    play.after(60_000);
    play.hub("hub:heartbeat_ack");
    assert.ok(play.after(40_000).includes("send hub:renew token-1"));
    assert.deepEqual(play.hub("hub:unauthorized", {}, play.id("hub:renew")), ["send hub:register @(a)"]);
    assert.deepEqual(play.registered("@(a)", 2), ["event registered"]);
  });

  test("a rejected registration is given up, and blocks nothing", () => {
    const play = new Play();
    play.put(register("@(a)"));
    play.put(register("@(b)", 1));
    play.ask(2);
    play.open();
    play.greet();
    const [first, second] = play.sent.filter((frame) => frame["type"] === "hub:register").map((frame) => frame["id"] as string);
    assert.deepEqual(play.hub("hub:unauthorized", {}, first), ["event error"]);
    assert.deepEqual(play.hub("hub:unauthorized", {}, second), ["reject 1 unauthorized", "event connected", "send hub:send 2"]);
    assert.equal(play.last["from"], "@(session/s)");
  });

  test("a registration that failed temporarily is retried", () => {
    const play = new Play();
    play.put(register("@(a)"));
    play.open();
    play.greet();
    const stuck = () => play.hub("hub:error", { code: "internal_error", message: "no store", retryable: true }, play.id("hub:register"));
    assert.deepEqual(stuck(), []);
    assert.deepEqual(play.after(1_000), ["send hub:register @(a)"]);
    assert.deepEqual(stuck(), []);
    assert.deepEqual(play.after(2_000), ["send hub:register @(a)"]);
    assert.deepEqual(stuck(), ["event error", "event connected"]);
    assert.deepEqual(play.after(10_000), ["send hub:register @(a)"]);
    assert.deepEqual(play.registered("@(a)"), ["event registered"]);
  });

  test("an unregistered address is not registered again", () => {
    const play = new Play();
    play.connect();
    play.put(register("@(a)", 1));
    play.registered("@(a)");
    play.expect({ kind: "unregister", key: 2, address: "@(a)" }, "send hub:unregister @(a)");
    assert.deepEqual(play.hub("hub:unregistered", { actorAddress: "@(a)" }, play.id("hub:unregister")), ["resolve 2"]);
    play.put(cut());
    play.wake();
    play.put({ kind: "opened", token: null });
    assert.deepEqual(play.greet(), ["event connected"]);
  });
});

describe("messages", () => {
  test("a repeated message is delivered once, and its acknowledgement is repeated", () => {
    const play = new Play();
    play.connect();
    const frame = { id: "m", from: "@(b)", to: "@(session/s)", type: "job", payload: 1, metadata: { requireAck: true } };
    assert.deepEqual(play.frame(frame), ["message job"]);
    assert.deepEqual(play.frame(frame), []);
    play.expect({ kind: "acknowledge", id: "m", from: "@(session/s)" }, "send hub:ack m");
    assert.deepEqual(play.frame(frame), ["send hub:ack m"]);
  });

  test("an unprocessed message may be delivered again", () => {
    const play = new Play();
    play.connect();
    const frame = { id: "m", from: "@(b)", to: "@(session/s)", type: "job", payload: 1 };
    play.frame(frame);
    play.expect({ kind: "forget", id: "m" });
    assert.deepEqual(play.frame(frame), ["message job"]);
  });

  test("an ack without a connection is sent with the next", () => {
    const play = new Play();
    play.connect();
    play.frame({ id: "m", from: "@(b)", to: "@(session/s)", type: "job", payload: 1 });
    play.put(cut());
    play.expect({ kind: "acknowledge", id: "m", from: "@(session/s)" });
    play.wake();
    play.put({ kind: "opened", token: null });
    assert.deepEqual(play.greet(), ["send hub:ack m", "event connected"]);
  });

  test("the ids of 10,000 messages are remembered, the oldest are forgotten first", () => {
    const play = new Play();
    play.connect();
    const come = (id: string) => play.frame({ id, from: "@(b)", to: "@(session/s)", type: "job", payload: 1 });
    for (let i = 0; i <= 10_000; i++) come(`m${i}`);
    assert.deepEqual(come("m1"), []);
    assert.deepEqual(come("m0"), ["message job"]);
  });
});

describe("topics", () => {
  function subscribed(after: { epoch: number; seq: number } | null = null, at = { epoch: 7, seq: 4 }, topic = "news"): Play {
    const play = new Play();
    play.connect();
    play.put(subscribe(topic, 1, after));
    play.hub("hub:subscribed", { topic, subscriptionId: "s", ...at }, play.id("hub:subscribe"));
    return play;
  }
  const gap = (play: Play, from: number | null, to: number, epoch = 7) => play.hub("hub:gap", { topic: "news", epoch, from, to });

  test("messages are delivered in order, none twice", () => {
    const play = subscribed();
    assert.deepEqual(play.topic("news", 5), ["topic news 7:5"]);
    assert.deepEqual(play.topic("news", 5), []);
    assert.deepEqual(play.topic("news", 4), []);
    assert.deepEqual(play.topic("news", 6), ["topic news 7:6"]);
    assert.deepEqual(play.topic("other", 7), []);
  });

  test("a missing message is requested before later ones are delivered", () => {
    const play = subscribed();
    play.topic("news", 5);
    assert.deepEqual(play.topic("news", 8), ["send hub:subscribe news"]);
    assert.deepEqual(play.last["payload"], { topic: "news", after: { epoch: 7, seq: 5 } });
    assert.deepEqual(play.topic("news", 9), []);
    play.hub("hub:subscribed", { topic: "news", epoch: 7, seq: 9 }, play.id("hub:subscribe"));
    for (const seq of [6, 7, 8, 9]) assert.deepEqual(play.topic("news", seq), [`topic news 7:${seq}`]);
  });

  test("a gap is requested again, and reported if the hub cannot fill it", () => {
    const play = subscribed();
    play.topic("news", 5);
    assert.deepEqual(gap(play, 6, 8), ["send hub:subscribe news"]);
    play.hub("hub:subscribed", { topic: "news", epoch: 7, seq: 12 }, play.id("hub:subscribe"));
    assert.deepEqual(gap(play, 6, 7), ["event gap"]);
    assert.deepEqual(play.topic("news", 8), ["topic news 7:8"]);
  });

  test("a new epoch is a gap, followed by its history from the beginning", () => {
    const play = subscribed({ epoch: 3, seq: 90 });
    assert.deepEqual(gap(play, null, 2), ["event gap"]);
    assert.deepEqual(play.topic("news", 3), ["topic news 7:3"]);
    assert.deepEqual(play.topic("news", 4), ["topic news 7:4"]);
  });

  test("a log is delivered from its beginning, whatever its current position", () => {
    const play = subscribed(null, { epoch: 0, seq: 12 }, "run/r");
    assert.deepEqual(play.topic("run/r", 1, 0), ["topic run/r 0:1"]);
  });

  test("a slow consumer gets the rest later, from where the buffer was full", () => {
    const play = subscribed();
    play.topic("news", 5);
    play.topic("news", 6);
    play.expect({ kind: "overflow", topic: "news", at: { epoch: 7, seq: 6 } });
    assert.deepEqual(play.topic("news", 7), []);
    play.expect({ kind: "drained", topic: "news" }, "send hub:subscribe news");
    assert.deepEqual(play.last["payload"], { topic: "news", after: { epoch: 7, seq: 5 } });
  });

  test("a slow consumer gets the rest of a log that has already ended", () => {
    const play = subscribed(null, { epoch: 0, seq: 3 }, "run/r");
    play.topic("run/r", 1, 0);
    play.put({ kind: "overflow", topic: "run/r", at: { epoch: 0, seq: 1 } });
    const ended = () => play.hub("hub:unsubscribed", { topic: "run/r", subscriptionId: "s", reason: "ended" });
    assert.deepEqual(ended(), []);
    play.expect({ kind: "drained", topic: "run/r" }, "send hub:subscribe run/r");
    play.hub("hub:subscribed", { topic: "run/r", epoch: 0, seq: 3 }, play.id("hub:subscribe"));
    assert.deepEqual(play.topic("run/r", 1, 0), ["topic run/r 0:1"]);
    assert.deepEqual(ended(), ["end run/r"]);
  });

  test("a second subscription to a topic is rejected", () => {
    const play = subscribed();
    play.expect(subscribe("news", 2), "reject 2 already_subscribed");
  });

  test("a subscription ends when the hub rejects or ends it", () => {
    const play = new Play();
    play.connect();
    play.put(subscribe("news", 1));
    assert.deepEqual(play.hub("hub:unauthorized", {}, play.id("hub:subscribe")), ["reject 1 unauthorized", "end news"]);
    const other = subscribed();
    assert.deepEqual(other.hub("hub:unsubscribed", { topic: "news", subscriptionId: "s", reason: "ended" }), ["end news"]);
    assert.deepEqual(other.topic("news", 5), []);
  });

  test("unsubscribing ends it immediately, and it is not restored", () => {
    const play = subscribed();
    play.expect({ kind: "unsubscribe", key: 2, topic: "news" }, "end news", "send hub:unsubscribe news");
    play.put(cut());
    play.wake();
    play.put({ kind: "opened", token: null });
    assert.deepEqual(play.greet(), ["resolve 2", "event connected"]);
  });
});

describe("several servers", () => {
  const elsewhere = { code: "elsewhere", message: "m", retryable: false, details: { targetAddress: "@(b)", url: "ws://two/hub" } };

  test("an ask to an actor of another server is repeated there, and the registrations follow", () => {
    const play = new Play();
    play.put(register("@(a)"));
    play.open();
    play.greet();
    play.registered("@(a)");
    play.ask(1);
    play.ask(2);
    const first = play.sent.at(-2)!["id"] as string;
    assert.deepEqual(play.hub("hub:error", elsewhere, first), ["shut", "move ws://two/hub", "event moved"]);
    assert.deepEqual(play.wake(), ["open"]);
    play.put({ kind: "opened", token: null });
    assert.deepEqual((play.last["payload"] as { resume: unknown }).resume, { sessionId: "secret" });
    assert.deepEqual(play.greet(), ["send hub:register @(a)"]);
    assert.deepEqual(play.registered("@(a)", 2), ["event registered", "event connected", "send hub:send 1", "send hub:send 2"]);
  });

  test("a client that is redirected too often gives up", () => {
    const play = new Play();
    play.connect();
    play.ask(1);
    for (let round = 0; round < 3; round += 1) {
      play.hub("hub:error", elsewhere, play.id("hub:send"));
      play.wake();
      play.put({ kind: "opened", token: null });
      play.greet();
    }
    assert.deepEqual(play.hub("hub:error", elsewhere, play.id("hub:send")), ["reject 1 elsewhere"]);
  });

  test("a server that is down is left for the first one", () => {
    const play = new Play();
    play.connect();
    play.ask(1);
    play.hub("hub:error", elsewhere, play.id("hub:send"));
    const lines: string[] = [];
    while (!lines.includes("move null")) {
      lines.push(...play.wake());
      play.put(cut());
    }
    assert.equal(lines.filter((line) => line === "open").length, 4);
  });

  test("a call waits as long as its target makes progress", () => {
    const play = new Play();
    play.connect();
    play.ask(1);
    const id = play.id("hub:send");
    for (let round = 0; round < 10; round += 1) {
      play.after(25_000);
      assert.deepEqual(play.hub("hub:progress", { messageId: id, until: 1 }, id), []);
    }
    assert.deepEqual(play.delivered(id), ["resolve 1"]);
    play.expect({ kind: "progress", id: "h-1", from: "@(session/s)" }, "send hub:progress h-1");
  });
});

describe("closing", () => {
  test("disconnects, waits for the hub, and rejects unsettled calls", () => {
    const play = new Play();
    play.connect();
    play.ask(1);
    play.expect({ kind: "close" }, "send hub:disconnect");
    assert.deepEqual(play.ask(2), ["reject 2 closed"]);
    assert.deepEqual(play.put(cut(1000)), ["reject 1 closed", "event disconnected", "ended"]);
    assert.equal(play.session.wakeAt, Infinity);
  });

  test("a second close has no effect, and a disconnect completes it", () => {
    const play = new Play();
    play.connect();
    play.put({ kind: "close" });
    play.expect({ kind: "close" });
    play.put(cut(1006));
    const ended = play.outputs.at(-1)!;
    assert.ok(ended.kind === "ended" && ended.error === null);
  });

  test("has a short time limit", () => {
    const play = new Play();
    play.connect();
    play.put({ kind: "close" });
    assert.deepEqual(play.after(2_000), ["shut", "event disconnected", "ended"]);
  });

  test("without a connection it ends at once", () => {
    const play = new Play();
    play.put({ kind: "start" });
    play.expect({ kind: "close" }, "shut", "event disconnected", "ended");
  });
});
