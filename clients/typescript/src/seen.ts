/** Dedup window: ids of messages received, so that repeats are dropped. The oldest are evicted first. */
export class Seen {
  private readonly ids = new Map<string, "new" | "acknowledged">();

  constructor(private readonly max: number) {}

  /** Adds an id. Returns whether it is new. */
  add(id: string): boolean {
    if (this.ids.has(id)) return false;
    this.ids.set(id, "new");
    if (this.ids.size > this.max) this.ids.delete(this.ids.keys().next().value as string);
    return true;
  }

  acknowledge(id: string): void {
    if (this.ids.has(id)) this.ids.set(id, "acknowledged");
  }

  /** Whether to repeat the acknowledgement: if the message is repeated, the hub did not receive it. */
  isAcknowledged(id: string): boolean {
    return this.ids.get(id) === "acknowledged";
  }

  /** Forgets an unprocessed message, so that a repeat is accepted. */
  forget(id: string): void {
    this.ids.delete(id);
  }

  get size(): number {
    return this.ids.size;
  }
}
