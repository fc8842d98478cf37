/**
 * State of each subscription.
 *
 * Holds: the user gets the messages of an epoch in the order of `seq`, each at most once; a gap is reported once.
 * A missing message is requested again before later messages or a gap are reported.
 */
import { isRunTopic, type Gap, type Position } from "./protocol.js";

/**
 * `asked`: `hub:subscribe` was sent; messages received before its answer are sent again after it.
 * `live`: messages are delivered. `stalled`: the user is too slow, and catches up later.
 */
type State = "asked" | "live" | "stalled";

export class Topic {
  private state: State = "asked";
  private position: Position | null;
  /** No message since the last `hub:subscribed`: messages missing now are no longer available from the hub. */
  private fresh = true;

  constructor(
    readonly name: string,
    after: Position | null,
    /** The call that waits for the first answer. */
    public key: number | null,
  ) {
    this.position = after;
  }

  /** Position to subscribe after: the user's, or the hub's default. */
  get after(): Position | null {
    return this.position;
  }

  /** Handles a subscribe request that was sent, or sent again. */
  ask(): void {
    this.state = "asked";
  }

  subscribed(at: Position): void {
    this.state = "live";
    this.fresh = true;
    // A log starts at its beginning, whatever its current position.
    if (this.position === null && !isRunTopic(this.name)) this.position = at;
  }

  /** Decides what to do with a message. */
  message(at: Position): "deliver" | "drop" | "recover" {
    if (this.state !== "live") return "drop";
    const last = this.position;
    if (last !== null && last.epoch === at.epoch) {
      if (at.seq <= last.seq) return "drop";
      if (at.seq > last.seq + 1 && !this.fresh) return "recover";
    }
    this.position = at;
    this.fresh = false;
    return "deliver";
  }

  /** Decides what to do about a gap that the hub announces. */
  gap(gap: Gap): "tell" | "recover" | "drop" {
    if (this.state !== "live") return "drop";
    if (gap.from !== null && !this.fresh) return "recover";
    // In a new epoch, the history follows, from whatever number it starts with.
    this.position = { epoch: gap.epoch, seq: gap.from === null ? 0 : (gap.to ?? gap.from) };
    this.fresh = true;
    return "tell";
  }

  /** Handles a message that the user had no room for: it and later ones are requested again. */
  overflow(at: Position): void {
    this.position = { epoch: at.epoch, seq: at.seq - 1 };
    this.state = "stalled";
  }

  get isStalled(): boolean {
    return this.state === "stalled";
  }

  /** Whether the user has all earlier messages. If not, they are requested again, and the log ends again. */
  get isLive(): boolean {
    return this.state === "live";
  }
}
