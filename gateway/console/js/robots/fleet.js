// What is known of the server's robots: answers of `/v1/robots`, put together. Times are the server's, in Unix seconds.

const REMEMBERED = 20; // seconds after its arrival that a request is forgotten
const GONE_FOR = 4; // seconds that a robot which is gone stays in view
const ROUNDS = 60; // round trips in the little picture
const RECENT = 5; // seconds that "a second" is averaged over
const LANES = 3;
const FAR = 1; // seconds: a clock that is off by more has been set

/** The server's clock as this page knows it. */
export class ServerClock {
  #offset = null;

  /** The server said `now` between `asked` and `answered` (`performance.now()`, ms). */
  hear(now, asked, answered) {
    const offset = now - (asked + answered) / 2000;
    const off = offset - (this.#offset ?? Infinity);
    this.#offset = Math.abs(off) > FAR ? offset : this.#offset + off / 8;
  }

  now(at = performance.now()) {
    return at / 1000 + (this.#offset ?? 0);
  }
}

export class Fleet {
  robots = new Map(); // by id, in the order in which they came
  policies = [];
  totals = { answers: {}, episodes: {} };
  now = 0; // the server's time of the last answer
  loaded = false;

  /** Put an answer to what is known. */
  take({ now, policies, totals, data }) {
    this.now = now;
    this.policies = policies;
    this.totals = totals;
    this.loaded = true;
    for (const report of data) {
      let robot = this.robots.get(report.id);
      if (!robot?.goesOn(report)) this.robots.set(report.id, (robot = new Robot()));
      robot.take(report, now);
    }
    const present = new Set(data.map(({ id }) => id));
    for (const [id, robot] of this.robots) {
      if (!present.has(id)) robot.goneAt ??= now;
      if (robot.goneAt !== null && now - robot.goneAt > GONE_FOR) this.robots.delete(id);
    }
  }

  get present() {
    return [...this.robots.values()].filter(({ goneAt }) => goneAt === null);
  }

  /** The figures over the robots: of the moment from their chunks, the rest since the server's start. */
  figures() {
    const present = this.present;
    const chunks = [...this.robots.values()].flatMap((robot) => [...robot.chunks.values()]).filter(({ status }) => status === "chunk");
    const recent = chunks.filter(({ left }) => left > this.now - RECENT);
    const rounds = chunks.filter(({ left }) => left > this.now - 2 * RECENT).map(({ arrived, left }) => 1000 * (left - arrived));
    const { success = 0, failure = 0, unknown = 0 } = this.totals.episodes;
    const count = (status) => this.totals.answers[status] ?? 0;
    return {
      connected: present.filter(({ report }) => report.attached).length,
      away: present.filter(({ report }) => !report.attached).length,
      rate: recent.length / RECENT,
      ...quantiles(rounds),
      late: count("late"),
      superseded: count("superseded"),
      refused: count("refused") + count("failed"),
      success,
      judged: success + failure,
      unknown,
    };
  }
}

export class Robot {
  report = null;
  chunks = new Map(); // by the request's number, the oldest first
  fences = [];
  rounds = []; // ms, of the last chunks
  goneAt = null;
  #lanes = new Array(LANES).fill(-Infinity); // until when each is taken

  /** Is this report of the same session? One of the same name may have begun since. */
  goesOn(report) {
    return this.goneAt === null && this.report.started_at === report.started_at && this.report.requests <= report.requests;
  }

  take(report, now) {
    const { chunks, fences, ...rest } = report;
    this.report = rest;
    this.fences = fences.map(({ epoch, at }) => ({ epoch, at: now + at }));
    for (const chunk of chunks) this.#put(chunk, now);
    for (const [number, { arrived, status }] of this.chunks) {
      if (arrived > now - REMEMBERED) break;
      if (status !== "working" && status !== "waiting") this.chunks.delete(number);
    }
  }

  /** Seconds that a chunk's actions last. */
  get lasts() {
    return this.report.horizon / this.report.rate;
  }

  #put(chunk, now) {
    const known = this.chunks.get(chunk.number);
    const at = (time) => (time === null ? null : now + time);
    const fresh = {
      ...chunk,
      arrived: known?.arrived ?? at(chunk.arrived), // what has been drawn does not tremble
      begun: known?.begun ?? at(chunk.begun),
      made: known?.made ?? at(chunk.made),
      left: known?.left ?? at(chunk.left),
      deadline: known?.deadline ?? at(chunk.deadline),
      lane: known?.lane ?? null,
    };
    if (fresh.status === "chunk" && known?.status !== "chunk") {
      this.rounds.push(1000 * (fresh.left - fresh.arrived));
      if (this.rounds.length > ROUNDS) this.rounds.shift();
    }
    if (fresh.lane === null && inLanes(fresh)) fresh.lane = this.#lane(fresh.arrived);
    if (fresh.lane !== null) this.#lanes[fresh.lane] = (fresh.left ?? fresh.arrived) + this.lasts;
    this.chunks.set(chunk.number, fresh);
  }

  /** The first lane that is free by then, else the one that is free first. */
  #lane(from) {
    const free = this.#lanes.findIndex((until) => until <= from);
    return free >= 0 ? free : this.#lanes.indexOf(Math.min(...this.#lanes));
  }
}

/** Chunks and what may become one are drawn in lanes; what came to nothing is only marked. */
export function inLanes({ status }) {
  return status === "chunk" || status === "working" || status === "waiting";
}

function quantiles(values) {
  if (!values.length) return { p50: null, p99: null };
  const sorted = values.sort((one, other) => one - other);
  const at = (share) => sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
  return { p50: at(0.5), p99: at(0.99) };
}
