/** The client on a real server. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import net from "node:net";
import { after, afterEach, before, describe, test } from "node:test";
import { connect, HubError, type ConnectOptions, type Hub, type Message, type SocketConstructor, type TopicMessage } from "../dist/index.js";
import { makeToken, NEEDS_SERVER, Server, temporaryFolder } from "./server.js";
import { Line, Sleeper } from "./wire.js";

/** Resources of a test, closed after it in reverse order. */
const opened: { close(): unknown }[] = [];

/** Starts a server for this test. */
async function started(starting: Promise<Server>): Promise<Server> {
  const server = await starting;
  opened.push({ close: () => server.stop() });
  return server;
}

function open(url: string, options: ConnectOptions = {}): Hub {
  const hub = connect(url, options);
  opened.push(hub);
  return hub;
}

afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

/** Time limit for an expected event. */
const PATIENCE_MS = 30_000;

/** Collects events that a test waits for. */
class Heard<T> {
  readonly all: T[] = [];
  private wake: () => void = () => undefined;

  readonly hear = (one: T): void => {
    this.all.push(one);
    this.wake();
  };

  async count(count: number): Promise<T[]> {
    await this.until(() => this.all.length >= count);
    return this.all;
  }

  async until(holds: (all: T[]) => boolean): Promise<T[]> {
    while (!holds(this.all)) {
      let limit: NodeJS.Timeout | undefined;
      const late = new Promise<never>((_, reject) => (limit = setTimeout(reject, PATIENCE_MS, new Error(`only these came: ${JSON.stringify(this.all)}`))));
      await Promise.race([new Promise<void>((resolve) => (this.wake = resolve)), late]).finally(() => clearTimeout(limit));
    }
    return this.all;
  }
}

function code(expected: string): (error: unknown) => boolean {
  return (error) => error instanceof HubError && error.code === expected;
}

const unique = (name: string): string => `${name}-${randomUUID().slice(0, 8)}`;
const unusedAddress = (): string => `@(test/${unique("actor")})`;

async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as net.AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

describe("a hub", { ...NEEDS_SERVER, timeout: 120_000 }, () => {
  let server: Server;
  before(async () => void (server = await Server.dev(temporaryFolder())));
  after(async () => await server.stop());

  async function actor(options: ConnectOptions = {}, url = server.hub): Promise<{ hub: Hub; address: string; heard: Heard<Message> }> {
    const address = unusedAddress();
    const hub = open(url, { ...options, register: [{ address, ...options.register?.[0] }] });
    const heard = new Heard<Message>();
    hub.onMessage(heard.hear);
    await hub.nextConnection();
    return { hub, address, heard };
  }

  test("carries tells and asks, in order, from the sender's address", async () => {
    const [a, b] = [await actor(), await actor()];
    for (let i = 0; i < 50; i++) void a.hub.tell(b.address, "note", { i });
    const delivery = await a.hub.ask(b.address, "note", { i: 50 });
    assert.equal(delivery.status, "delivered");
    assert.ok(typeof delivery.deliveredAt === "number");
    const all = await b.heard.count(51);
    assert.deepEqual(all.map(({ data }) => data), Array.from({ length: 51 }, (_, i) => ({ i })));
    assert.ok(all.every(({ from, to, type }) => from === a.address && to === b.address && type === "note"));
  });

  test("says when there is no such actor", async () => {
    const { hub } = await actor();
    await assert.rejects(hub.ask(unusedAddress(), "note"), code("unknown_actor"));
  });

  test("queues asks for an actor that is away", async () => {
    const [a, b] = [await actor(), await actor()];
    await b.hub.close();
    for (const i of [1, 2, 3]) assert.equal((await a.hub.ask(b.address, "note", i)).status, "queued");
    await a.hub.tell(b.address, "note", 4, { queue: true });
    const heard = new Heard<Message>();
    const back = open(server.hub, { register: [{ address: b.address }] });
    back.onMessage(heard.hear);
    assert.deepEqual((await heard.count(4)).map(({ data }) => data), [1, 2, 3, 4]);
  });

  test("delivers replies in the order of the handler, one message at a time", async () => {
    const a = await actor();
    const b = open(server.hub);
    const address = unusedAddress();
    await b.register({ address });
    let running = 0;
    b.onMessage(async (message) => {
      running += 1;
      assert.equal(running, 1);
      await message.reply("sum", (message.data as number) + 1);
      running -= 1;
    });
    const replies = await Promise.all([1, 2, 3, 4, 5].map((n) => a.hub.request<number>(address, "add", n)));
    assert.deepEqual(replies.map(({ type, data, from }) => [type, data, from]), [2, 3, 4, 5, 6].map((n) => ["sum", n, address]));
  });

  test("says `delivered` of an ask with `requireAck` when the handler is done", async () => {
    const a = await actor();
    const b = open(server.hub);
    const address = unusedAddress();
    await b.register({ address });
    const order: string[] = [];
    let finish: () => void = () => undefined;
    const begun = new Promise<void>((resolve) =>
      b.onMessage(async () => {
        resolve();
        await new Promise<void>((done) => (finish = done));
        order.push("handled");
      }),
    );
    const ask = a.hub.ask(address, "job", 1, { requireAck: true }).then(({ status }) => order.push(status));
    await begun;
    await a.hub.ask(a.address, "note"); // the hub has said all that it had to say before this
    assert.deepEqual(order, []);
    finish();
    await ask;
    assert.deepEqual(order, ["handled", "delivered"]);
  });

  test("reports a handler that throws, and continues", async () => {
    const a = await actor();
    const b = open(server.hub);
    const address = unusedAddress();
    await b.register({ address });
    const errors = new Heard<HubError>();
    b.on("error", ({ error }) => errors.hear(error));
    const heard = new Heard<unknown>();
    b.onMessage(({ data }) => {
      heard.hear(data);
      if (data === 1) throw new Error("boom");
    });
    await a.hub.ask(address, "note", 1);
    await a.hub.ask(address, "note", 2);
    assert.deepEqual(await heard.count(2), [1, 2]);
    assert.equal((await errors.count(1))[0]!.code, "handler_failed");
  });

  test("broadcasts by capability", async () => {
    const capability = unique("cap");
    const [a, b] = [await actor({ register: [{ capabilities: [capability] } as never] }), await actor({ register: [{ capabilities: [capability] } as never] })];
    const counted = await a.hub.broadcast("news", { n: 1 }, { capability, excludeSelf: true });
    assert.equal(counted.deliveredCount, 1);
    const [message] = await b.heard.count(1);
    assert.deepEqual([message!.type, message!.data, message!.to, message!.from], ["news", { n: 1 }, "@(broadcast)", a.address]);
    const found = await a.hub.discover("@(test/*)", { capability });
    assert.deepEqual(found.actors.map((one) => one.actorAddress).sort(), [a.address, b.address].sort());
  });

  test("lists actors page by page, and shows figures", async () => {
    const { hub } = await actor();
    await actor();
    const first = await hub.actors({ limit: 1 });
    assert.equal(first.actors.length, 1);
    assert.equal(first.hasMore, true);
    const second = await hub.actors({ limit: 1, after: first.next! });
    assert.notEqual(second.actors[0]!.actorAddress, first.actors[0]!.actorAddress);
    const topic = unique("listed");
    await hub.subscribe(topic, () => {}).ready;
    const { topics } = await hub.topics({ after: topic.slice(0, -1), limit: 1 });
    assert.deepEqual([topics[0]!.topic, topics[0]!.subscribers, topics[0]!.seq], [topic, 1, 0]);
    assert.ok(Object.keys(await hub.metrics()).length > 0);
    assert.ok(Object.keys(await hub.queueStats()).length > 0);
  });

  test("feeds subscribers by handler and by iterator, and replays", async () => {
    const topic = unique("news");
    const [a, b, c] = [open(server.hub), open(server.hub), open(server.hub)];
    const heard = new Heard<TopicMessage>();
    const subscription = b.subscribe(topic, heard.hear);
    const start = await subscription.ready;
    assert.equal(start.seq, 0);
    for (const n of [1, 2, 3]) assert.equal((await a.publish(topic, "news", n)).seq, n);
    assert.deepEqual((await heard.count(3)).map(({ seq, data }) => [seq, data]), [[1, 1], [2, 2], [3, 3]]);
    const seen: unknown[] = [];
    for await (const { data } of c.subscribe(topic, { after: { ...start, seq: 1 } })) {
      seen.push(data);
      if (seen.length === 2) break;
    }
    assert.deepEqual(seen, [2, 3]);
    await subscription.close();
    assert.equal((await a.publish(topic, "news", 4)).subscriberCount, 0);
    await assert.rejects(b.subscribe("not a topic").ready, code("invalid_message"));
  });

  test("gives a slow subscriber everything, in order, without a gap", async () => {
    const topic = unique("flood");
    const [a, b] = [open(server.hub), open(server.hub)];
    const gaps = new Heard<unknown>();
    b.on("gap", gaps.hear);
    const subscription = b.subscribe<number>(topic);
    await subscription.ready;
    // More than its buffer holds, fewer than the hub keeps for it.
    const COUNT = 1_020;
    for (let n = 1; n <= COUNT; n += 1) await a.publish(topic, "news", n);
    const seen: number[] = [];
    for await (const { data } of subscription) {
      seen.push(data);
      if (seen.length === COUNT) break;
    }
    assert.deepEqual(seen, Array.from({ length: COUNT }, (_, i) => i + 1));
    assert.deepEqual(gaps.all, []);
  });

  test("reconnects after a cut: same session, same address, nothing of a topic missed, asks answered", async () => {
    const line = await Line.to(server.port);
    opened.push(line);
    const topic = unique("news");
    const [a, b] = [await actor({}, line.hub), await actor()];
    const session = a.hub.address;
    const [heard, gaps] = [new Heard<TopicMessage>(), new Heard<unknown>()];
    a.hub.on("gap", gaps.hear);
    await a.hub.subscribe(topic, heard.hear).ready;
    await b.hub.publish(topic, "news", 1);
    await heard.count(1);
    const lost = new Promise((resolve) => a.hub.on("disconnected", resolve));
    line.cut();
    await lost;
    const connected = a.hub.nextConnection();
    await b.hub.publish(topic, "news", 2);
    const ask = a.hub.ask(b.address, "note", "during");
    await b.hub.publish(topic, "news", 3);
    assert.equal((await connected).resumed, true);
    assert.equal(a.hub.address, session);
    assert.equal((await ask).status, "delivered");
    assert.deepEqual((await heard.count(3)).map(({ data }) => data), [1, 2, 3]);
    assert.deepEqual(gaps.all, []);
    assert.equal((await b.hub.ask(a.address, "note")).status, "delivered");
  });

  test("delivers an ask once although its answer was lost", async () => {
    const line = await Line.to(server.port);
    opened.push(line);
    const [a, b, address] = [await actor({}, line.hub), open(server.hub), unusedAddress()];
    await b.register({ address });
    const heard = new Heard<unknown>();
    b.onMessage(async ({ data }) => {
      heard.hear(data);
      if (data !== 1) return;
      // The asker is disconnected when this is acknowledged: it reconnects and retries.
      const lost = new Promise((resolve) => a.hub.on("disconnected", resolve));
      line.cut();
      await lost;
    });
    assert.equal((await a.hub.ask(address, "job", 1, { requireAck: true })).status, "delivered");
    assert.equal((await a.hub.ask(address, "job", 2)).status, "delivered");
    assert.deepEqual(await heard.count(2), [1, 2]);
  });

  test("sends more asks than the hub accepts at once: all arrive, each once", async () => {
    const [a, b] = [await actor({ buffer: { messages: 4_000 } }), await actor()];
    const COUNT = 2_500; // it takes 2,000, then 1,000 a second
    const asks = await Promise.all(Array.from({ length: COUNT }, (_, n) => a.hub.ask(b.address, "note", n)));
    assert.ok(asks.every(({ status }) => status === "delivered"));
    const all = (await b.heard.count(COUNT)).map(({ data }) => data as number);
    assert.deepEqual(all.sort((one, other) => one - other), Array.from({ length: COUNT }, (_, n) => n));
  });

  test("ends with an error when another session registers its address", async () => {
    const first = await actor();
    const events = new Heard<{ code: number; returns: boolean }>();
    first.hub.on("disconnected", events.hear);
    const second = open(server.hub);
    const { version } = await second.register({ address: first.address });
    assert.ok(version > 1);
    assert.equal((await first.hub.closed)?.code, "closed");
    assert.deepEqual(events.all.map(({ code, returns }) => [code, returns]), [[4000, false]]);
    await assert.rejects(first.hub.ask(first.address, "note"), code("closed"));
  });

  test("has a bounded buffer: a call is rejected, or waits", async () => {
    const port = await freePort();
    const url = `ws://127.0.0.1:${port}/hub`;
    const own = [unusedAddress(), unusedAddress()] as const;
    const rejects = open(url, { register: [{ address: own[0] }], buffer: { messages: 10 } });
    const waits = open(url, { register: [{ address: own[1] }], buffer: { messages: 10, whenFull: "wait" } });
    const heard = [new Heard<Message>(), new Heard<Message>()] as const;
    rejects.onMessage(heard[0].hear);
    waits.onMessage(heard[1].hear);
    const told = Array.from({ length: 10 }, (_, n) => rejects.tell(own[0], "note", n));
    await assert.rejects(rejects.tell(own[0], "note", 10), code("buffer_full"));
    const asked = Array.from({ length: 35 }, (_, n) => waits.ask(own[1], "note", n));
    await started(Server.dev(temporaryFolder(), { port }));
    await Promise.all(told);
    assert.ok((await Promise.all(asked)).every(({ status }) => status === "delivered"));
    const numbers = async (index: 0 | 1, count: number) => (await heard[index].count(count)).map(({ data }) => data);
    assert.deepEqual(await numbers(0, 10), Array.from({ length: 10 }, (_, n) => n));
    assert.deepEqual(await numbers(1, 35), Array.from({ length: 35 }, (_, n) => n));
  });

  test("sends nothing while it is paused, and continues after hub:resume", async () => {
    const sent: string[] = [];
    class Recorder extends WebSocket {
      override send(data: string): void {
        sent.push((JSON.parse(data) as { type: string }).type);
        super.send(data);
      }
    }
    const address = unusedAddress();
    const sleeper = await Sleeper.at(server.port);
    opened.push(sleeper);
    const envelope = { from: "@(x)", to: "@(hub)", pattern: "ask", timestamp: Date.now() };
    sleeper.send({ ...envelope, id: "1", type: "hub:connect", payload: { protocolVersion: "0.1.0" } });
    sleeper.send({ ...envelope, id: "2", type: "hub:register", payload: { actorAddress: address } });
    await sleeper.hears("hub:registered");
    sleeper.sleep();

    const [hub, other] = [open(server.hub, { WebSocket: Recorder as unknown as SocketConstructor }), await actor()];
    const [paused, resumed] = (["paused", "resumed"] as const).map(
      (type) => new Promise<number>((resolve) => hub.on(type, () => resolve(sent.length))),
    ) as [Promise<number>, Promise<number>];
    const tells: Promise<void>[] = [];
    for (let stop = false; !stop; ) {
      tells.push(hub.tell(address, "fill", "x".repeat(500_000)));
      stop = await Promise.race([tells.at(-1)!.then(() => new Promise<boolean>((resolve) => setImmediate(resolve, false))), paused.then(() => true)]);
    }
    const [last, before] = [hub.ask(address, "last", 1), await paused];
    // Other clients continue, which shows that the server runs and this client had time to send.
    for (let i = 0; i < 20; i++) await other.hub.ask(other.address, "note");
    assert.deepEqual(sent.slice(before), []);
    sleeper.wake();
    assert.equal(await resumed, before);
    assert.equal((await last).status, "delivered");
    await Promise.all(tells);
    await sleeper.hears('"last"');
  });
});

describe("a hub whose server goes away", { ...NEEDS_SERVER, timeout: 120_000 }, () => {
  for (const signal of ["SIGKILL", "SIGTERM"] as const) {
    test(`comes back after ${signal}: addresses, subscriptions, what waits`, async () => {
      const [store, topic, address] = [temporaryFolder(), unique("news"), unusedAddress()];
      const server = await started(Server.dev(store));
      const [a, b] = [open(server.hub, { register: [{ address }] }), open(server.hub)];
      const [registered, gaps, heard, messages] = [new Heard<number>(), new Heard<{ from: number | null }>(), new Heard<TopicMessage>(), new Heard<Message>()];
      a.on("registered", ({ version }) => registered.hear(version));
      a.on("gap", ({ gap }) => gaps.hear(gap));
      a.onMessage(messages.hear);
      await registered.count(1);
      await a.subscribe(topic, heard.hear).ready;
      await b.publish(topic, "news", "before");
      await heard.count(1);

      const lost = Promise.all([a, b].map((hub) => new Promise((resolve) => hub.on("disconnected", resolve))));
      await server.stop(signal);
      await lost;
      const ask = b.ask(address, "note", "while it was down");
      await started(Server.dev(store, { port: server.port }));
      assert.ok(["delivered", "queued"].includes((await ask).status));
      assert.equal((await messages.count(1))[0]!.data, "while it was down");
      const [first, second] = await registered.count(2);
      assert.ok(second! > first!, "the version grows");
      await gaps.count(1);
      assert.equal(gaps.all[0]!.from, null);
      await b.publish(topic, "news", "after");
      assert.deepEqual((await heard.count(2)).map(({ data }) => data), ["before", "after"]);
    });
  }
});

describe("a hub and a run", { ...NEEDS_SERVER, timeout: 120_000 }, () => {
  test("a signal resumes the run, and its log is read from the beginning to the end", async () => {
    const server = await started(Server.dev(temporaryFolder(), { demo: true }));
    const hub = open(server.hub);
    const run = server.run!;
    const ended = new Heard<TopicMessage>();
    await hub.subscribe("runs", ended.hear).ready;
    const log = hub.follow(run);
    await log.ready;
    await assert.rejects(hub.signal("no-such-run", "approval"), code("unknown_actor"));
    assert.equal((await hub.signal(run, "approval", { approved: true, by: "ada" }, { id: "once" })).status, "delivered");
    await ended.until((all) => all.some(({ type, data }) => type === "run:ended" && (data as { id: string }).id === run));
    const seqs: number[] = [];
    const types: string[] = [];
    for await (const { data } of log) {
      seqs.push(data.seq);
      types.push(...data.events.map((event) => event.type));
    }
    assert.equal(log.reason, "ended");
    assert.deepEqual(seqs, seqs.map((_, i) => i + 1));
    assert.equal(types[0], "run.started");
    assert.equal(types.at(-1), "run.completed");
    await assert.rejects(hub.signal(run, "approval", { approved: true, by: "ada" }, { id: "twice" }), code("unknown_actor"));
  });
});

describe("a hub with tokens", { ...NEEDS_SERVER, timeout: 120_000 }, () => {
  let server: Server;
  const admin = NEEDS_SERVER.skip === undefined ? makeToken("admin", ["admin"]) : null!;
  const page = NEEDS_SERVER.skip === undefined ? makeToken("page", ["hub:own:@(page/*)", "hub:send:@(worker/*)", "hub:read:news"]) : null!;
  before(async () => void (server = await Server.serve(temporaryFolder(), [admin, page], [])));
  after(async () => await server.stop());

  test("ends at once with a wrong token, or none", async () => {
    for (const options of [{}, { token: "wrong" }]) {
      const hub = open(server.hub, options);
      const ask = hub.ask("@(worker/a)", "note");
      await assert.rejects(ask, code("unauthorized"));
      assert.equal((await hub.closed)?.code, "unauthorized");
    }
  });

  test("requests another token after a wrong one", async () => {
    const tokens = ["wrong", admin.token];
    const hub = open(server.hub, { token: () => tokens.shift()! });
    await hub.nextConnection();
    assert.deepEqual(tokens, []);
  });

  test("is limited to its scopes", async () => {
    const [worker, hub] = [open(server.hub, { token: admin.token }), open(server.hub, { token: page.token })];
    await worker.register({ address: "@(worker/a)" });
    await hub.register({ address: "@(page/1)" });
    assert.equal((await hub.ask("@(worker/a)", "note")).status, "delivered");
    await hub.subscribe("news").ready;
    await assert.rejects(hub.register({ address: "@(worker/b)" }), code("unauthorized"));
    await assert.rejects(hub.register({ address: "@(worker/a)" }), code("unauthorized"));
    await assert.rejects(hub.ask("@(boss/a)", "note"), code("unauthorized"));
    await assert.rejects(hub.publish("news", "note"), code("unauthorized"));
    await assert.rejects(hub.subscribe("secrets").ready, code("unauthorized"));
    assert.equal((await worker.ask("@(page/1)", "note")).status, "delivered");
  });
});
