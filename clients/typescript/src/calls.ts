/**
 * What was said to the hub and is not settled: tells that wait to be written, asks that wait for an answer.
 *
 * Holds: every ask is settled within three attempts, connected or not; what is not settled is bounded; an ask keeps its id.
 * Absent on purpose: sockets, timers and promises. Time comes in as `now`, answers go out as what the methods return.
 */
import { HubError } from "./errors.js";
import { ASK_ATTEMPTS, ASK_TIMEOUT_MS, ASK_WAIT_MS, REPLY_GRACE_MS } from "./limits.js";
import { byteLength, HUB, type Metadata, type Pattern } from "./protocol.js";

/** Who wants to know how it ended. */
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
  /** It undoes something that ends with the connection too, and is done if that ends first. */
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
  /** Which call it was: earlier ones go first. */
  readonly order: number;
  state: State;
  /** How often it was written; the number of the attempt that the hub sees. */
  sends: number;
  /** How many attempts went unanswered or were refused for now. */
  failures: number;
  /** When `state` ends by itself. Tells wait for a connection as long as it takes. */
  deadline: number;
}

export type Failed = { pending: Pending; error: HubError };

/** What an envelope takes besides its payload, about. */
const ENVELOPE_BYTES = 512;

export class Calls {
  private readonly pending = new Map<string, Pending>();
  /** Of leases and topics: they go before all others, for others depend on them. */
  private urgent: string[] = [];
  private normal: string[] = [];
  private bytes = 0;
  private users = 0;
  private count = 0;
  /** No deadline lies before this; it may be too early, never too late. */
  private nextDue = Infinity;

  constructor(
    private readonly messagesMax: number,
    private readonly bytesMax: number,
  ) {}

  /** Whether a call of the user would be refused. An empty buffer takes any call, however large. */
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

  /** The next to be written; `urgentOnly` until all leases stand again. */
  next(urgentOnly: boolean): Pending | undefined {
    return this.first(this.urgent) ?? (urgentOnly ? undefined : this.first(this.normal));
  }

  /** It is written: a tell is settled by that, an ask waits for its answer. */
  sent(pending: Pending): void {
    const queue = pending.owner.kind === "user" ? this.normal : this.urgent;
    if (queue[0] === pending.id) queue.shift();
    pending.sends += 1;
    pending.state = "sent";
    if (pending.call.pattern === "tell") this.remove(pending);
  }

  /** The hub has it; the reply is still to come. */
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

  /** Goes to where it was, in this attempt. */
  again(pending: Pending): void {
    if (pending.state !== "sent") return; // it was refused before, and waits already
    pending.state = "waiting";
    const queue = pending.owner.kind === "user" ? this.normal : this.urgent;
    const place = queue.findIndex((id) => (this.pending.get(id)?.order ?? -1) > pending.order);
    queue.splice(place < 0 ? queue.length : place, 0, pending.id);
  }

  /** The attempt failed; the error is final if it was the last. */
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
   * After a cut: those of leases and topics are made anew by whoever wants them, all others are to be sent again at once, in
   * order. Returns what the cut has settled.
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

  /** Lets time pass: what has waited too long rests, is sent again, or fails. */
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

  /** When `tick` is wanted. */
  get wakeAt(): number {
    return this.nextDue;
  }

  /** Whether a lease waits for its answer. */
  get hasLeases(): boolean {
    for (const pending of this.pending.values()) if (pending.owner.kind === "lease") return true;
    return false;
  }

  get isEmpty(): boolean {
    return this.first(this.normal) === undefined && this.first(this.urgent) === undefined;
  }

  /** Everything, which is given up. */
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

  /** The first that is still wanted and still waits; others have been settled since they were put there. */
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

/** The text of a frame. The payload was made into text when the call came, so that later changes of it do not matter. */
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

/** The error of a frame that the hub would not read, or null. */
export function tooLarge(text: string, max: number): HubError | null {
  if (text.length * 3 <= max) return null;
  const size = byteLength(text);
  if (size <= max) return null;
  const fields = { hint: "send a reference to the data instead", details: { messageSize: size, maxSize: max } };
  return new HubError("message_too_large", `a message has at most ${max} bytes, this one has ${size}`, fields);
}

/** The error of a message whose `ttl` has passed before it could be written, or null. */
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
