/** Asks again and again while somebody looks: every `interval` ms (which may be changed), ever more rarely while it fails. */
export class Polling {
  interval;
  #work;
  #slowest;
  #timer = null;
  #running = false;
  #asking = false;
  #again = false;
  #failures = 0;

  /** `work()` is awaited; when it throws, the next try comes after twice the time, at most `slowest` ms. */
  constructor(work, { interval = 2000, slowest = 30000 } = {}) {
    this.#work = work;
    this.interval = interval;
    this.#slowest = slowest;
    document.addEventListener("visibilitychange", () => {
      if (this.#running && !document.hidden) this.now();
    });
  }

  start() {
    if (this.#running) return;
    this.#running = true;
    this.now();
  }

  stop() {
    this.#running = false;
    clearTimeout(this.#timer);
  }

  /** Ask at once; right after the answer when the question is out already, since it may be too old. */
  now() {
    if (!this.#running) return;
    this.#again = this.#asking;
    if (!this.#asking) this.#next(0);
  }

  /** Milliseconds until the next try. */
  get pause() {
    return Math.min(this.#slowest, this.interval * 2 ** this.#failures);
  }

  #next(pause) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#turn(), pause);
  }

  async #turn() {
    if (document.hidden) return; // the page asks again when it is looked at
    this.#asking = true;
    this.#again = false;
    try {
      await this.#work();
      this.#failures = 0;
    } catch {
      this.#failures = Math.min(this.#failures + 1, 10); // whoever polls shows the error itself
    }
    this.#asking = false;
    if (this.#running) this.#next(this.#again ? 0 : this.pause);
  }
}
