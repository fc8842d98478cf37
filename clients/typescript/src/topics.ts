/**
 * Where each subscription is.
 *
 * Holds: the user sees the messages of an epoch in the order of `seq`, none twice; what is missed is told once.
 * A message that is missing in the middle is asked for again before anything is told.
 */
import { isRunTopic, type Gap, type Position } from "./protocol.js";

/**
 * `asked`: `hub:subscribe` is on its way, what comes before its answer comes again after it.
 * `live`: messages go through. `stalled`: the user is too slow, and catches up later.
 */
type State = "asked" | "live" | "stalled";

export class Topic {
  private state: State = "asked";
  private position: Position | null;
  /** Since the last `hub:subscribed` no message has come: what the hub leaves out now it cannot give. */
  private fresh = true;

  constructor(
    readonly name: string,
    after: Position | null,
    /** The call that waits for the first answer. */
    public key: number | null,
  ) {
    this.position = after;
  }

  /** What to ask for: from where the user is, or from where the hub begins. */
  get after(): Position | null {
    return this.position;
  }

  /** A subscription is asked for (again). */
  ask(): void {
    this.state = "asked";
  }

  subscribed(at: Position): void {
    this.state = "live";
    this.fresh = true;
    // A log begins at its beginning, wherever it is now.
    if (this.position === null && !isRunTopic(this.name)) this.position = at;
  }

  /** What to do with a message that came. */
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

  /** What to do about a gap that the hub announces. */
  gap(gap: Gap): "tell" | "recover" | "drop" {
    if (this.state !== "live") return "drop";
    if (gap.from !== null && !this.fresh) return "recover";
    // In a new epoch what was kept of it comes now, from wherever it begins.
    this.position = { epoch: gap.epoch, seq: gap.from === null ? 0 : (gap.to ?? gap.from) };
    this.fresh = true;
    return "tell";
  }

  /** The user had no room for this message: it and what follows is asked for again later. */
  overflow(at: Position): void {
    this.position = { epoch: at.epoch, seq: at.seq - 1 };
    this.state = "stalled";
  }

  get isStalled(): boolean {
    return this.state === "stalled";
  }

  /** Whether the user has seen all that came before. If not, it is asked for again, and ends again. */
  get isLive(): boolean {
    return this.state === "live";
  }
}
