/**
 * Calls to the hub that are not settled: tells waiting to be written, asks waiting for an answer.
 *
 * Holds: every ask is settled within three attempts, connected or not; the number of unsettled calls is bounded; an
 * ask keeps its id.
 * Deliberately without sockets, timers and promises: the time is the argument `now`, and results are return values.
 */
import { HubError } from "./errors.js";
import { ASK_ATTEMPTS, ASK_TIMEOUT_MS, ASK_WAIT_MS, REPLY_GRACE_MS } from "./limits.js";
import { byteLength, HUB, type Metadata, type Pattern } from "./protocol.js";

/** The part of the client that gets the outcome. */
export type Owner = { kind: "user"; key: number } | { kind: "lease"; address: string } | { kind: "topic"; topic: string };

export interface Call {
  type: string;
  payload: unknown;
  pattern: Pattern;
  /** Whether the answer is the target's reply, not the hub's acknowledgement. */
  expectReply?: boolean;
  from?: string | undefined;
  ttl?: number | null | undefined;
  metadata?: Metadata | undefined;
  id?: string | undefined;
  /** Whether a disconnect has the same effect as the call and so completes it, as for `hub:unsubscribe`. */
  endsWithConnection?: boolean;
}

type State = "waiting" | "sent" | "resting" | "acknowledged";

export interface Pending {
  readonly id: string;
  readonly owner: Owner;
  readonly call: Call;
  readonly payload: string;
  readonly bytes: number;
  readonly createdAt: number;
  /** Sequence number of the call: earlier calls are sent first. */
  readonly order: number;
  state: State;
  /** How often it was written; the attempt number that the hub sees. */
  sends: number;
  /** Number of attempts that failed temporarily or had no answer. */
  failures: number;
  /** End of the current `state`. Tells wait for a connection without a limit. */
  deadline: number;
}

export type Failed = { pending: Pending; error: HubError };

/** Approximate size of an envelope without its payload. */
const ENVELOPE_BYTES = 512;

export class Calls {
  private readonly pending = new Map<string, Pending>();
  /** Calls of leases and topics, which are sent first because other calls depend on them. */
  private urgent: string[] = [];
  private normal: string[] = [];
  private bytes = 0;
  private users = 0;
  private count = 0;
  /** Lower bound of all deadlines; it may be too early, never too late. */
  private nextDue = Infinity;

  constructor(
    private readonly messagesMax: number,
    private readonly bytesMax: number,
  ) {}

  /** Whether to reject a call of the user. An empty buffer accepts any call, however large. */
  isFull(call: Call): boolean {
    if (this.users === 0) return false;
    const payload = this.users < this.messagesMax ? asJson(call.payload) : null;
    return payload === null || (typeof payload === "string" && !this.fits(payload));
  }

  add(id: string, owner: Owner, call: Call, now: number): HubError | null {
    const payload = asJson(call.payload);
    if (payload instanceof HubError) return payload;
    if (owner.kind === "user" && !this.fits(payload)) return bufferFull();
    const bytes = payload.length + ENVELOPE_BYTES;
    if (this.pending.has(id)) return new HubError("invalid_call", `an unsettled call has this id already: \`${id}\``);
    const deadline = call.pattern === "ask" ? now + ASK_TIMEOUT_MS : Infinity;
    this.pending.set(id, { id, owner, call, payload, bytes, createdAt: now, order: this.count++, state: "waiting", sends: 0, failures: 0, deadline });
    (owner.kind === "user" ? this.normal : this.urgent).push(id);
    if (owner.kind === "user") this.users += 1;
    this.bytes += bytes;
    this.due(deadline);
    return null;
  }

  get(id: string | null): Pending | undefined {
    return id === null ? undefined : this.pending.get(id);
  }

  remove(pending: Pending): void {
    if (!this.pending.delete(pending.id)) return;
    this.bytes -= pending.bytes;
    if (pending.owner.kind === "user") this.users -= 1;
  }

  /** Returns the next call to write; only urgent ones until all leases are registered again. */
  next(urgentOnly: boolean): Pending | undefined {
    return this.first(this.urgent) ?? (urgentOnly ? undefined : this.first(this.normal));
  }

  /** Marks a call as written: a tell is settled, an ask waits for its answer. */
  sent(pending: Pending): void {
    const queue = pending.owner.kind === "user" ? this.normal : this.urgent;
    if (queue[0] === pending.id) queue.shift();
    pending.sends += 1;
    pending.state = "sent";
    if (pending.call.pattern === "tell") this.remove(pending);
  }

  /** Handles the hub's acknowledgement of a request; the reply is still to come. */
  acknowledged(pending: Pending, now: number): void {
    pending.state = "acknowledged";
    pending.deadline = now + (pending.call.ttl ?? ASK_TIMEOUT_MS) + REPLY_GRACE_MS;
    this.due(pending.deadline);
  }

  /** Extends the deadline of a call whose target makes progress. */
  extend(pending: Pending, now: number): void {
    const grace = pending.state === "acknowledged" ? REPLY_GRACE_MS : 0;
    if (pending.state !== "sent" && pending.state !== "acknowledged") return;
    pending.deadline = Math.max(pending.deadline, now + ASK_TIMEOUT_MS + grace);
    this.due(pending.deadline);
  }

  /** Puts a call back into its queue within the same attempt. */
  again(pending: Pending): void {
    if (pending.state !== "sent") return; // it was refused before, and waits already
    pending.state = "waiting";
    const queue = pending.owner.kind === "user" ? this.normal : this.urgent;
    const place = queue.findIndex((id) => (this.pending.get(id)?.order ?? -1) > pending.order);
    queue.splice(place < 0 ? queue.length : place, 0, pending.id);
  }

  /** Handles a failed attempt. Returns the error if it was the last. */
  failed(pending: Pending, error: HubError, now: number): HubError | null {
    if (pending.state === "resting") return null; // that attempt has failed already
    pending.failures += 1;
    if (pending.failures >= ASK_ATTEMPTS) {
      this.remove(pending);
      return error;
    }
    pending.state = "resting";
    pending.deadline = now + ASK_WAIT_MS * pending.failures;
    this.due(pending.deadline);
    return null;
  }

  /**
   * Handles a disconnect: leases and topics issue their calls again, all other calls are sent again immediately, in
   * order. Returns the calls that the disconnect settled.
   */
  requeue(now: number): Pending[] {
    const settled: Pending[] = [];
    this.urgent = [];
    this.normal = [];
    this.nextDue = Infinity;
    for (const pending of [...this.pending.values()]) {
      if (pending.owner.kind !== "user" || pending.call.endsWithConnection === true) {
        this.remove(pending);
        settled.push(pending);
        continue;
      }
      if (pending.state === "resting" || pending.state === "acknowledged") pending.deadline = now + ASK_TIMEOUT_MS;
      pending.state = "waiting";
      this.normal.push(pending.id);
      this.due(pending.deadline);
    }
    return settled;
  }

  /** Advances the time: calls past their deadline pause, are retried, or fail. */
  tick(now: number): Failed[] {
    if (now < this.nextDue) return [];
    const failed: Failed[] = [];
    this.nextDue = Infinity;
    for (const pending of [...this.pending.values()]) {
      const error = pending.deadline <= now ? this.expire(pending, now) : null;
      if (error !== null) failed.push({ pending, error });
      else this.due(pending.deadline);
    }
    return failed;
  }

  /** Time of the next `tick`. */
  get wakeAt(): number {
    return this.nextDue;
  }

  /** Whether a registration waits for its answer. */
  get hasLeases(): boolean {
    for (const pending of this.pending.values()) if (pending.owner.kind === "lease") return true;
    return false;
  }

  get isEmpty(): boolean {
    return this.first(this.normal) === undefined && this.first(this.urgent) === undefined;
  }

  /** Removes and returns all calls, which are abandoned. */
  drain(): Pending[] {
    const all = [...this.pending.values()];
    this.pending.clear();
    this.urgent = [];
    this.normal = [];
    this.bytes = 0;
    this.users = 0;
    return all;
  }

  private fits(payload: string): boolean {
    const fits = this.bytes + payload.length + ENVELOPE_BYTES <= this.bytesMax;
    return this.users === 0 || (this.users < this.messagesMax && fits);
  }

  private expire(pending: Pending, now: number): HubError | null {
    if (pending.state === "resting") {
      pending.state = "waiting";
      pending.deadline = now + ASK_TIMEOUT_MS;
      (pending.owner.kind === "user" ? this.normal : this.urgent).push(pending.id);
      return null;
    }
    if (pending.state === "acknowledged") {
      this.remove(pending);
      return timeout(pending);
    }
    return this.failed(pending, timeout(pending), now);
  }

  /** Returns the first call in the queue that still waits; settled calls stay in the queue until then. */
  private first(queue: string[]): Pending | undefined {
    while (queue.length > 0) {
      const pending = this.pending.get(queue[0] as string);
      if (pending?.state === "waiting") return pending;
      queue.shift();
    }
    return undefined;
  }

  private due(at: number): void {
    if (at < this.nextDue) this.nextDue = at;
  }
}

/** Returns the text of a frame. The payload was serialised at the time of the call, so that later changes to it have no effect. */
export function render(pending: Pending, from: string): string {
  const { call, id, createdAt } = pending;
  const attempt = call.pattern === "ask" ? { attemptNumber: pending.sends + 1 } : {};
  const head = JSON.stringify({
    id,
    from: call.from ?? from,
    to: HUB,
    type: call.type,
    pattern: call.pattern,
    correlationId: null,
    timestamp: createdAt,
    metadata: { ...call.metadata, ...attempt },
    ttl: call.ttl ?? null,
    signature: null,
  });
  return `${head.slice(0, -1)},"payload":${pending.payload}}`;
}

/** Returns an error if the frame exceeds the hub's size limit, else null. */
export function tooLarge(text: string, max: number): HubError | null {
  if (text.length * 3 <= max) return null;
  const size = byteLength(text);
  if (size <= max) return null;
  const fields = { hint: "send a reference to the data instead", details: { messageSize: size, maxSize: max } };
  return new HubError("message_too_large", `a message has at most ${max} bytes, this one has ${size}`, fields);
}

/** Returns an error if the message's `ttl` passed before it could be written, else null. */
export function expired(pending: Pending, now: number): HubError | null {
  const ttl = pending.call.ttl ?? null;
  if (ttl === null || pending.createdAt + ttl >= now) return null;
  return new HubError("message_expired", `the message waited longer than its \`ttl\` of ${ttl} ms`);
}

export function bufferFull(): HubError {
  const hint = "wait for calls to settle, or set `buffer.whenFull` to \"wait\"";
  return new HubError("buffer_full", "too many messages are not settled yet", { retryable: true, hint });
}

function asJson(payload: unknown): string | HubError {
  try {
    return JSON.stringify(payload ?? null);
  } catch (cause) {
    return new HubError("invalid_call", `not to be told in JSON: ${String(cause)}`, { cause });
  }
}

function timeout(pending: Pending): HubError {
  const what = pending.state === "acknowledged" ? "no reply" : "no answer";
  const details = { type: pending.call.type, attempts: pending.sends, attemptedAt: pending.createdAt };
  return new HubError("timeout", `${what} came in time: \`${pending.call.type}\``, { retryable: true, details });
}
