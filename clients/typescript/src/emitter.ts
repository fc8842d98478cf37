/** Event listeners by type. */
export class Emitter<Events extends { type: string }> {
  private readonly listeners = new Map<string, Set<(event: never) => void>>();

  /** Adds a listener. Returns a function that removes it. */
  on<Type extends Events["type"]>(type: Type, listener: (event: Extract<Events, { type: Type }>) => void): () => void {
    const all = this.listeners.get(type) ?? new Set();
    this.listeners.set(type, all.add(listener));
    return () => void all.delete(listener);
  }

  /** Calls all listeners. An exception in one does not stop the others, and is reported like that of any other callback. */
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
