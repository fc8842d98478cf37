/** Messages as the user receives them, and the bounded queue in which they wait. */
import type { Envelope, Metadata, Pattern } from "./protocol.js";

/** Outcome of an ask: written to its target (or acknowledged by it), or queued until the target returns. */
export interface Delivery {
  /** The id under which the hub recognises a repeat. */
  id: string;
  status: "delivered" | "queued";
  /** When it was delivered or kept, by the hub's clock. */
  deliveredAt: number | null;
}

/** The answer of an actor to a request. */
export interface Reply<T = unknown> {
  type: string;
  data: T;
  from: string;
  metadata: Metadata;
}

/** A message to one of this client's addresses, or to all. */
export interface Message<T = unknown> {
  id: string;
  from: string;
  to: string;
  type: string;
  data: T;
  pattern: Pattern;
  timestamp: number;
  metadata: Metadata;
  /** Whether the sender waits for `reply`. */
  wantsReply: boolean;
  /** Whether the sender waits for `ack`. */
  wantsAck: boolean;
  reply(type: string, data?: unknown): Promise<Delivery>;
  /** Acknowledges the message. Happens automatically after the handler returns, if the sender requires it. */
  ack(): void;
  /** Extends the deadline for `ack` or `reply` to 30 s from now. Call it as often as needed. */
  progress(): void;
}

/** A message of a topic. */
export interface TopicMessage<T = unknown> {
  topic: string;
  epoch: number;
  seq: number;
  from: string;
  type: string;
  data: T;
  timestamp: number;
  metadata: Metadata;
}

/** An entry of a run's log, as the topic `run/RUN` carries it. */
export interface RunEntry {
  seq: number;
  at: string;
  by: string;
  events: { type: string; [key: string]: unknown }[];
}

export function message(frame: Envelope, acts: Pick<Message, "reply" | "ack" | "progress">): Message {
  return {
    id: frame.id,
    from: frame.from,
    to: frame.to,
    type: frame.type,
    data: frame.payload,
    pattern: frame.pattern,
    timestamp: frame.timestamp,
    metadata: frame.metadata,
    wantsReply: frame.pattern === "ask",
    wantsAck: frame.metadata["requireAck"] === true,
    ...acts,
  };
}

export function topicMessage(topic: string, at: { epoch: number; seq: number }, frame: Envelope): TopicMessage {
  const { from, type, payload: data, timestamp, metadata } = frame;
  return { topic, ...at, from, type, data, timestamp, metadata };
}

/** A bounded queue with one handler, which processes the items in order, one at a time. */
export class Inbox<T> {
  private readonly waiting: T[] = [];
  private handler: ((item: T) => Promise<void>) | null = null;
  private busy = false;

  constructor(private readonly max: number) {}

  /** Adds an item. Returns false if the queue is full. */
  push(item: T): boolean {
    if (this.waiting.length >= this.max) return false;
    this.waiting.push(item);
    void this.work();
    return true;
  }

  /** Sets the handler, which must not throw. */
  handle(handler: ((item: T) => Promise<void>) | null): void {
    this.handler = handler;
    void this.work();
  }

  get isHandled(): boolean {
    return this.handler !== null;
  }

  private async work(): Promise<void> {
    if (this.busy) return;
    this.busy = true;
    while (this.handler !== null && this.waiting.length > 0) {
      await this.handler(this.waiting.shift() as T);
    }
    this.busy = false;
  }
}
