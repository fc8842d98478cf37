/** The ids of messages that have come, so that one that comes twice is dropped. The oldest go first. */
export class Seen {
  private readonly ids = new Map<string, "new" | "acknowledged">();

  constructor(private readonly max: number) {}

  /** Whether it is new. */
  add(id: string): boolean {
    if (this.ids.has(id)) return false;
    this.ids.set(id, "new");
    if (this.ids.size > this.max) this.ids.delete(this.ids.keys().next().value as string);
    return true;
  }

  acknowledge(id: string): void {
    if (this.ids.has(id)) this.ids.set(id, "acknowledged");
  }

  /** The hub has not seen the acknowledgement if the message comes again. */
  isAcknowledged(id: string): boolean {
    return this.ids.get(id) === "acknowledged";
  }

  /** It was not dealt with: let it come again. */
  forget(id: string): void {
    this.ids.delete(id);
  }

  get size(): number {
    return this.ids.size;
  }
}
