// A job on its way to the server. It is sent again until the server has taken or refused it; the same idempotency key goes with
// every try, so that a lost answer does not make two jobs of one.

const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 15_000;
const AGAIN = new Set([0, 429, 502, 503, 504]);

let number = 0;

export class Sending {
  id = `sending-${++number}`;
  state = "sending"; // sending, waiting (for the next try) or refused
  error = null;
  againAt = 0; // ms since the epoch
  #key = idempotencyKey();
  #stopped = new AbortController();
  #pauses = 0;
  #wake = () => {};

  /** `source.create(spec, {key, signal})` submits; `changed()` is called when there is something new to show. */
  constructor(spec, source, changed) {
    this.spec = spec;
    this.source = source;
    this.created = Date.now() / 1000;
    this.changed = changed;
  }

  /** The job that became of it; null when it was refused or given up. */
  async run() {
    while (!this.#stopped.signal.aborted) {
      this.#set("sending", null);
      try {
        return await this.source.create(this.spec, { key: this.#key, signal: this.#stopped.signal });
      } catch (error) {
        if (this.#stopped.signal.aborted) break;
        if (!AGAIN.has(error.status)) {
          this.#set("refused", error);
          return null;
        }
        await this.#pause(error);
      }
    }
    return null;
  }

  /** Try now. */
  hurry() {
    this.#wake();
  }

  /** Give up. A job that the server has taken meanwhile stays: the list shows it. */
  stop() {
    this.#stopped.abort();
    this.#wake();
  }

  async #pause(error) {
    const wait = error.retryAfter ? error.retryAfter * 1000 : Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.#pauses);
    this.#pauses += 1;
    this.againAt = Date.now() + wait;
    this.#set("waiting", error);
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, wait);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #set(state, error) {
    this.state = state;
    this.error = error;
    this.changed();
  }
}

/** 128 random bits; `crypto.randomUUID` is there only on https and localhost. */
function idempotencyKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
