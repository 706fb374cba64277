// The jobs of this API key as the server has them. The server is the truth: what is shown is what its lists say, page by page, so two
// tabs and a reload see the same. One loop looks for all of them.

import { Emitter } from "../emitter.js";
import { Polling } from "../operations/polling.js";

const PAGE = 12;
const MOST = 100; // jobs that one look can see of a kind
const BUSY_MS = 1000; // between looks while something is made, unless the server says how long
const IDLE_MS = 5000; // otherwise: another tab or client may have asked for something
const SOONEST_MS = 250;
const SLOWEST_MS = 15_000; // while the server does not answer

/**
 * The list of `sources` (one a kind of job), newest first.
 * Emits `changed()` when there may be something new to show, `looked()` after each look, `failed(error, pauseMs)` when one failed and
 * `recovered()` when one works again.
 */
export class JobList extends Emitter {
  #sources;
  #polling = new Polling(() => this.#look(), { interval: BUSY_MS, slowest: SLOWEST_MS });
  #failing = false;
  loaded = false;

  constructor(sources) {
    super();
    this.#sources = sources.map((source) => new Known(source));
  }

  /** What is shown: every known job that is newer than the oldest of each kind that has older ones still to be asked for. */
  get shown() {
    const horizon = Math.max(-Infinity, ...this.#sources.filter(({ more }) => more).map(({ oldest }) => oldest));
    return this.#sources
      .flatMap(({ jobs }) => jobs)
      .filter(({ created }) => created >= horizon)
      .sort((a, b) => b.created - a.created); // stable: jobs of the same second stay in the server's order
  }

  get hasMore() {
    return this.#sources.some(({ more }) => more);
  }

  start() {
    this.#polling.start();
  }

  stop() {
    this.#polling.stop();
  }

  /** Look at once. */
  now() {
    this.#polling.now();
  }

  /** A job that was just submitted, before the next look sees it. */
  put(job) {
    this.#sources.find(({ source }) => source.kind === job.kind).put(job);
    this.emit("changed");
    this.now();
  }

  /** A job is gone: another look would say so too. */
  drop(job) {
    for (const known of this.#sources) known.drop(job);
    this.emit("changed");
    this.now();
  }

  /** Ask for older jobs: of the kind whose known ones end first. Throws `ApiError`. */
  async more() {
    const [first] = this.#sources.filter(({ more }) => more).sort((a, b) => b.oldest - a.oldest);
    if (first) await first.older();
    this.emit("changed");
  }

  async #look() {
    try {
      const waits = await Promise.all(this.#sources.map((known) => known.newest()));
      const active = this.#sources.some((known) => known.active);
      const said = waits.filter((wait) => wait !== null);
      this.#polling.interval = active ? Math.max(SOONEST_MS, said.length ? Math.min(...said) : BUSY_MS) : IDLE_MS;
      this.loaded = true;
      this.emit("looked");
      if (this.#failing) this.emit("recovered");
      this.#failing = false;
      this.emit("changed");
    } catch (error) {
      this.#failing = true;
      this.#polling.interval = BUSY_MS;
      this.emit("failed", error, Math.min(SLOWEST_MS, this.#polling.pause * 2));
      throw error;
    }
  }
}

/** What is known of one kind of job: its newest ones, without a gap. */
class Known {
  jobs = []; // newest first
  more = false;
  #began = false;

  constructor(source) {
    this.source = source;
  }

  /** When the oldest known job was made. */
  get oldest() {
    return this.jobs.at(-1)?.created ?? Infinity;
  }

  get active() {
    return this.jobs.some(({ ended }) => !ended);
  }

  put(job) {
    this.drop(job);
    this.jobs.unshift(job);
  }

  drop({ id }) {
    this.jobs = this.jobs.filter((job) => job.id !== id);
  }

  /** Look at the newest jobs, as far back as the oldest that is still being made. Gives the server's wish for the pause, ms or null. */
  async newest() {
    const oldestActive = this.jobs.findLastIndex(({ ended }) => !ended);
    let page = await this.#ask(Math.min(MOST, oldestActive + 1 + PAGE));
    if (this.#apart(page)) page = await this.#ask(MOST); // many were submitted at once
    this.#merge(page);
    return page.pollAfter;
  }

  /** One page further back. */
  async older() {
    const page = await this.source.list({ after: this.jobs.at(-1)?.id, limit: PAGE });
    const known = new Set(this.jobs.map(({ id }) => id));
    this.jobs.push(...page.jobs.filter(({ id }) => !known.has(id)));
    this.more = page.more;
  }

  async #ask(limit) {
    const asked = new Set(this.jobs.map(({ id }) => id));
    return { ...(await this.source.list({ limit })), asked };
  }

  /** Whether there may be jobs between the page and those that are known. */
  #apart(page) {
    const ids = new Set(page.jobs.map(({ id }) => id));
    return page.more && this.jobs.length > 0 && !this.jobs.some(({ id }) => ids.has(id));
  }

  #merge(page) {
    const ids = new Set(page.jobs.map(({ id }) => id));
    const since = page.jobs.at(-1)?.created ?? -Infinity;
    const last = this.jobs.findLastIndex(({ id }) => ids.has(id));
    // What was submitted while the server was asked is too new for its answer; what it leaves out of what it could have named is gone.
    const young = this.jobs.filter(({ id }) => !page.asked.has(id) && !ids.has(id));
    const old = page.more && last >= 0 ? this.jobs.slice(last + 1).filter(({ id, created }) => page.asked.has(id) && created <= since) : [];
    this.jobs = [...young, ...page.jobs, ...old];
    if (!this.#began || !old.length) this.more = page.more;
    this.#began = true;
  }
}
