/** Who listens to which events. */
export class Emitter<Events extends { type: string }> {
  private readonly listeners = new Map<string, Set<(event: never) => void>>();

  /** Returns what ends the listening. */
  on<Type extends Events["type"]>(type: Type, listener: (event: Extract<Events, { type: Type }>) => void): () => void {
    const all = this.listeners.get(type) ?? new Set();
    this.listeners.set(type, all.add(listener));
    return () => void all.delete(listener);
  }

  /** A listener that throws does not stop the others; its error is reported as that of any other callback. */
  emit(event: Events): void {
    for (const listener of [...(this.listeners.get(event.type) ?? [])]) {
      try {
        (listener as (event: Events) => void)(event);
      } catch (error) {
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}
