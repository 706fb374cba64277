/** What stands in a `/metrics` answer (Prometheus' text format), as far as the console needs it. */
export class Metrics {
  #samples = new Map(); // name -> [{labels, value}]

  constructor(text) {
    for (const [, name, labels, value] of text.matchAll(/^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([0-9.eE+-]+|NaN|[+-]Inf)$/gm)) {
      if (!this.#samples.has(name)) this.#samples.set(name, []);
      const pairs = [...(labels ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, text]) => [key, text]);
      this.#samples.get(name).push({ labels: Object.fromEntries(pairs), value: Number(value) });
    }
  }

  has(name) {
    return this.#samples.has(name);
  }

  /** The sum of a metric's samples that carry these labels; 0 for none. */
  sum(name, labels = {}) {
    const wanted = Object.entries(labels);
    const found = (this.#samples.get(name) ?? []).filter((sample) => wanted.every(([key, value]) => sample.labels[key] === value));
    return found.reduce((total, { value }) => total + value, 0);
  }
}
