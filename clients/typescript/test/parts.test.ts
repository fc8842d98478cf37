/** The parts around the session that need no server. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { connect, HubError } from "../dist/index.js";
import { Emitter } from "../dist/emitter.js";
import { Inbox, type TopicMessage } from "../dist/messages.js";
import { parse } from "../dist/protocol.js";
import { Seen } from "../dist/seen.js";
import { socketUrl } from "../dist/socket.js";
import { Subscription } from "../dist/subscription.js";

describe("addresses of a hub", () => {
  const cases: [given: string, opened: string | null][] = [
    ["ws://127.0.0.1:7070/hub", "ws://127.0.0.1:7070/hub"],
    ["http://127.0.0.1:7070/hub", "ws://127.0.0.1:7070/hub"],
    ["https://example.com/hub?x=1", "wss://example.com/hub?x=1"],
    ["ftp://example.com/hub", null],
    ["not an address", null],
  ];
  for (const [given, opened] of cases) {
    test(`${given} → ${opened ?? "refused"}`, () => {
      if (opened === null) assert.throws(() => socketUrl(given), TypeError);
      else assert.equal(socketUrl(given), opened);
    });
  }

  test("a missing WebSocket is an error with a hint", () => {
    const given = globalThis.WebSocket;
    try {
      Reflect.deleteProperty(globalThis, "WebSocket");
      assert.throws(() => connect("ws://127.0.0.1:1/hub"), (error) => error instanceof HubError && /--experimental-websocket/.test(error.hint!));
    } finally {
      Object.defineProperty(globalThis, "WebSocket", { value: given, configurable: true, writable: true });
    }
  });
});

describe("frames", () => {
  const cases: [text: string, isFrame: boolean][] = [
    ['{"id":"1","from":"@(a)","to":"@(b)","type":"t","pattern":"tell","timestamp":1}', true],
    ['{"type":"pong"}', false],
    ["not json", false],
    ["null", false],
    ["[1]", false],
    ['{"id":1,"from":"@(a)","type":"t"}', false],
  ];
  for (const [text, isFrame] of cases) test(`${text} is ${isFrame ? "one" : "none"}`, () => assert.equal(parse(text) !== null, isFrame));

  test("absent fields read as null, absent metadata as empty", () => {
    const frame = parse('{"id":"1","from":"@(a)","to":"@(b)","type":"t","pattern":"ask","timestamp":1}')!;
    assert.deepEqual([frame.payload, frame.correlationId, frame.ttl, frame.metadata, frame.pattern], [null, null, null, {}, "ask"]);
  });
});

test("the dedup window evicts the oldest ids first", () => {
  const seen = new Seen(2);
  assert.deepEqual(["a", "b", "a", "c", "a", "c"].map((id) => seen.add(id)), [true, true, false, true, true, false]);
  assert.equal(seen.size, 2);
});

test("a listener that throws does not stop the others", async () => {
  const emitter = new Emitter<{ type: "x"; n: number }>();
  const heard: number[] = [];
  // The runner counts an uncaught error as a failure of the test: this one is wanted.
  const listeners = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException");
  const thrown = new Promise<Error>((resolve) => process.once("uncaughtException", resolve));
  emitter.on("x", () => {
    throw new Error("boom");
  });
  const off = emitter.on("x", ({ n }) => heard.push(n));
  emitter.emit({ type: "x", n: 1 });
  assert.equal((await thrown).message, "boom");
  for (const listener of listeners) process.on("uncaughtException", listener);
  off();
  assert.deepEqual(heard, [1]);
});

test("an inbox is processed one item at a time, keeps items from before its handler, and is bounded", async () => {
  const inbox = new Inbox<number>(2);
  assert.deepEqual([inbox.push(1), inbox.push(2), inbox.push(3)], [true, true, false]);
  const order: string[] = [];
  const done = new Promise<void>((resolve) =>
    inbox.handle(async (n) => {
      order.push(`begin ${n}`);
      await new Promise((next) => setImmediate(next));
      order.push(`end ${n}`);
      if (n === 2) resolve();
    }),
  );
  await done;
  assert.deepEqual(order, ["begin 1", "end 1", "begin 2", "end 2"]);
});

describe("a subscription", () => {
  const message = (seq: number): TopicMessage => ({ topic: "t", epoch: 1, seq, from: "@(a)", type: "n", data: seq, timestamp: 0, metadata: {} });
  const make = (calls: string[] = [], max = 4): Subscription => {
    const subscription: Subscription = new Subscription("t", Promise.resolve({ epoch: 1, seq: 0 }), max, {
      drained: () => void calls.push("drained"),
      close: async () => (calls.push("close"), subscription.end(null, null)),
    });
    return subscription;
  };

  test("yields the buffered messages, then ends", async () => {
    const subscription = make();
    subscription.push(message(1));
    subscription.push(message(2));
    subscription.end("ended", null);
    const seen: number[] = [];
    for await (const { seq } of subscription) seen.push(seq);
    assert.deepEqual(seen, [1, 2]);
    assert.equal(subscription.reason, "ended");
  });

  test("throws its final error after the buffered messages", async () => {
    const subscription = make();
    subscription.push(message(1));
    subscription.end(null, new HubError("unauthorized", "no"));
    const seen: number[] = [];
    await assert.rejects(async () => {
      for await (const { seq } of subscription) seen.push(seq);
    }, HubError);
    assert.deepEqual(seen, [1]);
  });

  test("is closed when the loop is left", async () => {
    const calls: string[] = [];
    const subscription = make(calls);
    subscription.push(message(1));
    for await (const _ of subscription) break;
    assert.deepEqual(calls, ["close"]);
  });

  test("rejects messages when it is full, and reports when half of it is free", async () => {
    const calls: string[] = [];
    const subscription = make(calls);
    assert.deepEqual([1, 2, 3, 4, 5].map((seq) => subscription.push(message(seq))), [true, true, true, true, false]);
    const iterator = subscription[Symbol.asyncIterator]();
    await iterator.next();
    assert.deepEqual(calls, []);
    await iterator.next();
    assert.deepEqual(calls, ["drained"]);
  });
});
