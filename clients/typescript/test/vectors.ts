/** Runs conformance vectors: see `conformance/hub/README.md` for what the steps mean. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
type Frame = { [key: string]: Json };

export type Step =
  | { open: string }
  | { from: string; frame: Frame; binary?: boolean }
  | { from: string; text: string }
  | { to: string; frame: Frame }
  | { silent: string }
  | { close: string }
  | { closed: string; code: number }
  | { times: number; steps: Step[] };

export interface Vector {
  name: string;
  rule: string;
  steps: Step[];
}

const FOLDER = new URL("../../../conformance/hub/", import.meta.url);

export function vectors(): Vector[] {
  const names = readdirSync(FOLDER).filter((name) => name.endsWith(".json"));
  assert.ok(names.length > 0, "there are no vectors");
  return names.sort().map((name) => {
    const vector = JSON.parse(readFileSync(new URL(name, FOLDER), "utf8")) as Vector;
    assert.equal(`${vector.name}.json`, name);
    return vector;
  });
}

/** Time limit for an expected frame. */
const PATIENCE_MS = 20_000;

/** A socket with a queue of received frames. */
class RawSocket {
  private readonly socket: WebSocket;
  private readonly frames: string[] = [];
  private code: number | null = null;
  private wake: () => void = () => undefined;

  constructor(url: string) {
    this.socket = new WebSocket(url);
    this.socket.onmessage = ({ data }) => (this.frames.push(String(data)), this.wake());
    this.socket.onclose = ({ code }) => ((this.code = code), this.wake());
  }

  async opened(): Promise<void> {
    if (this.socket.readyState === WebSocket.OPEN) return;
    await new Promise<void>((resolve, reject) => {
      this.socket.onopen = () => resolve();
      this.socket.onerror = () => reject(new Error("the socket did not open"));
    });
  }

  send(data: string | Uint8Array<ArrayBuffer>): void {
    this.socket.send(data);
  }

  async next(): Promise<string> {
    await this.until(() => this.frames.length > 0 || this.code !== null, "no frame came");
    const frame = this.frames.shift();
    assert.ok(frame !== undefined, `the socket was closed with ${this.code}`);
    return frame;
  }

  async closed(): Promise<number> {
    await this.until(() => this.code !== null, "the socket was not closed");
    return this.code!;
  }

  close(): void {
    this.socket.close(1000);
  }

  private async until(holds: () => boolean, otherwise: string): Promise<void> {
    const limit = Date.now() + PATIENCE_MS;
    while (!holds()) {
      const left = limit - Date.now();
      assert.ok(left > 0, otherwise);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, left);
        this.wake = () => (clearTimeout(timer), resolve());
      });
    }
  }
}

class FailedStep extends Error {}

export class Runner {
  private readonly sockets = new Map<string, RawSocket>();
  private readonly names = new Map<string, Json>();
  private readonly run = `v${randomUUID().replaceAll("-", "").slice(0, 12)}`;

  constructor(
    private readonly url: string,
    /** Called for every received frame. */
    private readonly onFrame: (frame: Json) => void,
  ) {}

  static async run(vector: Vector, url: string, onFrame: (frame: Json) => void): Promise<void> {
    const runner = new Runner(url, onFrame);
    try {
      await runner.steps(vector.steps, "");
    } finally {
      for (const socket of runner.sockets.values()) socket.close();
    }
  }

  private async steps(steps: Step[], place: string): Promise<void> {
    for (const [index, step] of steps.entries()) {
      try {
        await this.step(step, `${place}${index}.`);
      } catch (error) {
        if (error instanceof FailedStep) throw error;
        throw new FailedStep(`step ${place}${index} ${JSON.stringify(step).slice(0, 400)}: ${(error as Error).message}`);
      }
    }
  }

  private async step(step: Step, place: string): Promise<void> {
    if ("times" in step) {
      for (let time = 0; time < step.times; time++) await this.steps(step.steps, `${place}${time}.`);
    } else if ("open" in step) {
      const socket = new RawSocket(this.url);
      this.sockets.set(step.open, socket);
      await socket.opened();
    } else if ("text" in step) {
      this.socket(step.from).send(this.inside(step.text));
    } else if ("from" in step) {
      const text = JSON.stringify(this.sent(step.frame));
      this.socket(step.from).send(step.binary === true ? new TextEncoder().encode(text) : text);
    } else if ("to" in step) {
      await this.receive(step.to, step.frame);
    } else if ("silent" in step) {
      this.socket(step.silent).send('{"type":"ping"}');
      await this.receive(step.silent, { type: "pong" });
    } else if ("close" in step) {
      this.socket(step.close).close();
      await this.socket(step.close).closed();
    } else {
      assert.equal(await this.socket(step.closed).closed(), step.code);
    }
  }

  private socket(name: string): RawSocket {
    const socket = this.sockets.get(name);
    assert.ok(socket !== undefined, `no socket is called \`${name}\``);
    return socket;
  }

  private async receive(name: string, expected: Frame): Promise<void> {
    const text = await this.socket(name).next();
    const frame = JSON.parse(text) as Json;
    this.onFrame(frame);
    const difference = this.differs(expected, frame, "");
    assert.equal(difference, null, `${difference} in ${text.slice(0, 1_000)}`);
  }

  private sent(value: Json): Json {
    if (Array.isArray(value)) return value.map((item) => this.sent(item));
    if (typeof value === "object" && value !== null) {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, this.sent(item)]));
    }
    return typeof value === "string" ? this.sentText(value) : value;
  }

  private sentText(text: string): Json {
    const now = /^\$now(?:-(\d+))?$/.exec(text);
    if (now !== null) return Date.now() - Number(now[1] ?? 0);
    const fresh = /^\$new:([a-z0-9]+)$/.exec(text)?.[1];
    if (fresh !== undefined) {
      const id = randomUUID();
      this.names.set(fresh, id);
      return id;
    }
    return this.named(text) ?? this.inside(text);
  }

  /** Returns the name that a text refers to, if any. */
  private named(text: string): Json | undefined {
    const name = /^\$([a-z0-9]+)$/.exec(text)?.[1];
    if (name === undefined || name === "run" || name === "any" || name === "absent") return undefined;
    assert.ok(this.names.has(name), `nothing is called \`${name}\``);
    return this.names.get(name)!;
  }

  private inside(text: string): string {
    return text.replace(/\$fill:(\d+)/g, (_, count: string) => "x".repeat(Number(count))).replaceAll("$run", this.run);
  }

  /** Returns the first difference, or null. */
  private differs(expected: Json, got: Json | undefined, at: string): string | null {
    if (typeof expected === "string") return this.textDiffers(expected, got, at);
    if (Array.isArray(expected)) {
      if (!Array.isArray(got) || got.length !== expected.length) return `\`${at}\` is not an array of ${expected.length}`;
      return first(expected.map((item, index) => this.differs(item, got[index], `${at}[${index}]`)));
    }
    if (typeof expected === "object" && expected !== null) {
      if (typeof got !== "object" || got === null || Array.isArray(got)) return `\`${at}\` is not an object`;
      return first(Object.entries(expected).map(([key, item]) => this.differs(item, got[key], `${at}.${key}`)));
    }
    return isDeepStrictEqual(expected, got ?? null) ? null : `\`${at}\` is not ${JSON.stringify(expected)}`;
  }

  private textDiffers(expected: string, got: Json | undefined, at: string): string | null {
    const [, kind, name] = /^\$(bind|not|above):([a-z0-9]+)$/.exec(expected) ?? [];
    const known = name === undefined ? undefined : this.names.get(name);
    if (expected === "$any") return got === undefined ? `\`${at}\` is absent` : null;
    if (expected === "$absent") return got === undefined ? null : `\`${at}\` is there`;
    if (kind === "bind" && known === undefined) return this.names.set(name!, got ?? null), null;
    if (kind === "above") return typeof got === "number" && got > Number(known) ? null : `\`${at}\` is not above ${String(known)}`;
    if (kind === "not") return got !== undefined && !isDeepStrictEqual(got, known) ? null : `\`${at}\` is absent, or the same as \`${name}\``;
    const wanted = kind === "bind" ? known! : (this.named(expected) ?? this.inside(expected));
    return isDeepStrictEqual(got ?? null, wanted) ? null : `\`${at}\` is not ${JSON.stringify(wanted).slice(0, 200)}`;
  }
}

function first(differences: (string | null)[]): string | null {
  return differences.find((difference) => difference !== null) ?? null;
}
