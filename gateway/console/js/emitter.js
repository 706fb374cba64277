/** Listeners by name. */
export class Emitter {
  #listeners = new Map();

  /** Listen; returns a function that stops it. */
  on(name, listener) {
    if (!this.#listeners.has(name)) this.#listeners.set(name, new Set());
    this.#listeners.get(name).add(listener);
    return () => this.#listeners.get(name).delete(listener);
  }

  emit(name, ...details) {
    for (const listener of this.#listeners.get(name) ?? []) listener(...details);
  }
}
