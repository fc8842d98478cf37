/** A subscription of the user: a handler or an async iterator, fed from a bounded buffer. */
import type { HubError } from "./errors.js";
import type { TopicMessage } from "./messages.js";
import type { Position } from "./protocol.js";

/** Callbacks of a subscription to its hub. */
export interface Feed {
  /** Half of the buffer is free again after it was full. */
  drained(): void;
  /** The user closed the subscription. */
  close(): Promise<void>;
}

export class Subscription<T = unknown> implements AsyncIterable<TopicMessage<T>> {
  private readonly buffer: TopicMessage<T>[] = [];
  private wake: (() => void) | null = null;
  private ended: { reason: string | null; error: HubError | null } | null = null;
  private overflowed = false;

  constructor(
    readonly topic: string,
    /** Position of the topic at the time of subscribing; rejected if the hub rejects the subscription. */
    readonly ready: Promise<Position>,
    private readonly max: number,
    private readonly feed: Feed,
  ) {
    // An iterating caller gets the error from the iterator.
    ready.catch(() => undefined);
  }

  /** The hub's reason for ending the subscription, if it gave one. */
  get reason(): string | null {
    return this.ended?.reason ?? null;
  }

  /** Ends the subscription: iterators finish with the buffered messages. */
  close(): Promise<void> {
    return this.feed.close();
  }

  /** Iterates over the messages in order. Several iterators share them. Throws the error that ended the subscription, if any. */
  async *[Symbol.asyncIterator](): AsyncGenerator<TopicMessage<T>, void, undefined> {
    try {
      for (;;) {
        const next = await this.take();
        if (next === null) return;
        yield next;
      }
    } finally {
      if (this.ended === null) await this.feed.close();
    }
  }

  /** @internal False if there is no room. */
  push(message: TopicMessage<T>): boolean {
    if (this.buffer.length >= this.max) {
      this.overflowed = true;
      return false;
    }
    this.buffer.push(message);
    this.stir();
    return true;
  }

  /** @internal */
  end(reason: string | null, error: HubError | null): void {
    this.ended ??= { reason, error };
    this.stir();
  }

  private async take(): Promise<TopicMessage<T> | null> {
    while (this.buffer.length === 0) {
      if (this.ended?.error) throw this.ended.error;
      if (this.ended !== null) return null;
      await new Promise<void>((resolve) => {
        const before = this.wake;
        this.wake = () => (before?.(), resolve());
      });
    }
    const message = this.buffer.shift() as TopicMessage<T>;
    if (this.overflowed && this.buffer.length <= this.max / 2) {
      this.overflowed = false;
      this.feed.drained();
    }
    return message;
  }

  private stir(): void {
    const wake = this.wake;
    this.wake = null;
    wake?.();
  }
}
