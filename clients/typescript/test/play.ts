/** A session under test: the test controls time and randomness, and each output is reported as one line. */
import assert from "node:assert/strict";
import { Session } from "../dist/session.js";
import { mismatch } from "./schema.js";
import type { Input, Output, SessionOptions } from "../dist/steps.js";

type Frame = { [key: string]: unknown };

export class Play {
  readonly session: Session;
  now = 1_000_000;
  room = Infinity;
  /** All frames sent, the newest last. */
  sent: Frame[] = [];
  outputs: Output[] = [];
  private ids = 0;

  constructor(options: Partial<SessionOptions> = {}) {
    this.session = new Session({
      capabilities: [],
      bufferMessages: 100,
      bufferBytes: 100_000,
      freshTokens: false,
      newId: () => `id-${++this.ids}`,
      random: () => 1,
      ...options,
    });
  }

  /** Passes an input to the session and returns its outputs. */
  put(input: Input): string[] {
    this.outputs = this.session.step(input, this.now, this.room);
    for (const output of this.outputs) if (output.kind === "send") this.check(JSON.parse(output.text) as Frame);
    return this.outputs.map(line);
  }

  private check(frame: Frame): void {
    assert.equal(mismatch("toHub", frame), null, JSON.stringify(frame).slice(0, 1_000));
    this.sent.push(frame);
  }

  expect(input: Input, ...lines: string[]): void {
    assert.deepEqual(this.put(input), lines);
  }

  /** Advances the time to the session's next timer and fires it. */
  wake(): string[] {
    assert.ok(this.session.wakeAt < Infinity, "nothing is to come by itself");
    this.now = Math.max(this.now, this.session.wakeAt);
    return this.put({ kind: "tick" });
  }

  after(ms: number): string[] {
    this.now += ms;
    return this.put({ kind: "tick" });
  }

  /** Returns a frame from the hub; `to` is the last frame sent, or the named one. */
  hub(type: string, payload: unknown = {}, correlationId: string | null = null): string[] {
    return this.frame({ from: "@(hub)", to: "@(session/s)", type, payload, correlationId });
  }

  frame(fields: Frame): string[] {
    const frame = { id: `h-${++this.ids}`, pattern: "tell", timestamp: this.now, metadata: {}, ...fields };
    return this.put({ kind: "frame", text: JSON.stringify(frame) });
  }

  topic(name: string, seq: number, epoch = 7): string[] {
    return this.frame({ from: "@(x)", to: `@(topic/${name})`, type: "news", payload: seq, metadata: { topic: name, epoch, seq } });
  }

  get last(): Frame {
    return this.sent.at(-1)!;
  }

  /** Returns the id of the last frame of this type. */
  id(type: string): string {
    const found = this.sent.filter((frame) => frame["type"] === type).at(-1);
    assert.ok(found !== undefined, `nothing was sent with type \`${type}\``);
    return found["id"] as string;
  }

  open(): void {
    this.put({ kind: "start" });
    this.put({ kind: "opened", token: null });
  }

  /** Connects, and answers all registrations. */
  connect(): string[] {
    this.open();
    return this.greet();
  }

  greet(fields: object = {}): string[] {
    const payload = { sessionId: "secret", address: "@(session/s)", resumed: false, heartbeatInterval: 30_000, maxMessageSize: 10_000, ...fields };
    return this.hub("hub:connected", payload, this.id("hub:connect"));
  }

  registered(address: string, version = 1): string[] {
    const payload = { actorAddress: address, expiresAt: this.now + 300_000, renewalToken: `token-${version}`, version };
    return this.hub("hub:registered", payload, this.id("hub:register"));
  }

  ask(key: number, more: object = {}): string[] {
    return this.put({ kind: "call", key, call: { type: "hub:send", payload: { to: "@(b)", type: "note", data: key }, pattern: "ask", ...more } });
  }

  tell(key: number, more: object = {}): string[] {
    return this.put({ kind: "call", key, call: { type: "hub:send", payload: { to: "@(b)", type: "note", data: key }, pattern: "tell", ...more } });
  }

  delivered(id: string): string[] {
    return this.hub("hub:delivery_ack", { messageId: id, status: "delivered", deliveredAt: this.now }, id);
  }
}

function line(output: Output): string {
  switch (output.kind) {
    case "send":
      return `send ${sentLine(JSON.parse(output.text) as Frame)}`;
    case "resolve":
      return `resolve ${output.key}`;
    case "reject":
      return `reject ${output.key} ${output.error.code}`;
    case "message":
      return `message ${output.frame.type}`;
    case "topic message":
      return `topic ${output.topic} ${output.at.epoch}:${output.at.seq}`;
    case "topic end":
      return `end ${output.topic}`;
    case "event":
      return `event ${output.event.type}`;
    case "move":
      return `move ${output.url}`;
    case "shut":
    case "open":
    case "ended":
      return output.kind;
  }
}

function sentLine(frame: Frame): string {
  const payload = (frame["payload"] ?? {}) as Frame;
  const what = payload["actorAddress"] ?? payload["topic"] ?? payload["data"] ?? payload["messageId"] ?? payload["renewalToken"];
  return what === undefined ? String(frame["type"]) : `${String(frame["type"])} ${String(what)}`;
}
