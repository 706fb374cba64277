// The job queue and the engines that draw: what waits and for how long, what steps aside for live work. From the server's metrics.

import { Metrics } from "./metrics.js";
import { el, setText } from "../dom.js";
import { duration } from "./sessions-table.js";

const KINDS = [
  ["video", "Clips"],
  ["image", "Pictures"],
  ["batch", "Batches"],
];
const CLASSES = ["realtime", "action", "interactive", "batch"];
const COLUMNS = ["Jobs", "Waiting", "Oldest", "Being made", "Made", "Failed", "Cancelled"];

export class JobsPanel {
  element;
  #body = el("tbody");
  #figures = {
    rate: figure("Steps a second", "Denoising steps, since the last look"),
    rows: figure("Rows a step", "How many pictures and frames share a step, since the last look"),
    preempted: figure("Steps preempted", "Times that a step waited for live work, since the engines were opened"),
    held: figure("Time held", "How long steps waited for live work"),
    waiting: figure("Waiting by class", "Requests that wait for a slot of any engine, the most urgent class first"),
    bytes: figure("Files made", "Bytes of completed jobs' files since the start"),
  };
  #last = null;

  constructor() {
    this.element = el("section", { class: "jobs", hidden: true });
  }

  /** `text` is what `/metrics` gave; `now` in seconds. A server without a job queue shows nothing. */
  show(text, now = Date.now() / 1000) {
    const metrics = new Metrics(text);
    this.element.hidden = !metrics.has("antiphon_jobs");
    if (this.element.hidden) return;
    if (!this.element.hasChildNodes()) this.#build();
    this.#showQueue(metrics);
    this.#showEngines(metrics, now);
  }

  #build() {
    const head = COLUMNS.map((title) => el("th", { scope: "col" }, title));
    const caption = el("caption", { class: "unseen" }, "Jobs");
    this.element.append(
      el("h2", {}, "Pictures and clips"),
      el("dl", { class: "figures" }, ...Object.values(this.#figures).map(({ element }) => element)),
      el("div", { class: "wide" }, el("table", {}, caption, el("thead", {}, el("tr", {}, ...head)), this.#body)),
    );
  }

  #showQueue(metrics) {
    const rows = KINDS.map(([kind, title]) => {
      const count = (status) => metrics.sum("antiphon_jobs", { kind, status });
      const waiting = count("queued");
      const oldest = metrics.sum("antiphon_jobs_oldest_queued_seconds", { kind });
      const ended = ["completed", "failed", "cancelled"].map(count);
      const cells = [waiting, waiting ? duration(oldest) : "–", count("in_progress"), ...ended];
      return el("tr", {}, el("th", { scope: "row" }, title), ...cells.map((cell) => el("td", { class: "figure" }, String(cell))));
    });
    this.#body.replaceChildren(...rows);
  }

  #showEngines(metrics, now) {
    const sum = (name) => metrics.sum(`antiphon_diffusion_${name}_total`);
    const seen = { at: now, steps: sum("steps"), rows: sum("rows") };
    const since = this.#last && seen.steps >= this.#last.steps ? this.#last : seen; // an engine that was restarted counts anew
    const steps = seen.steps - since.steps;
    this.#figures.rate.show(now > since.at ? (steps / (now - since.at)).toFixed(1) : "–");
    this.#figures.rows.show(steps > 0 ? ((seen.rows - since.rows) / steps).toFixed(1) : "–");
    this.#figures.preempted.show(String(sum("preemptions")));
    this.#figures.held.show(duration(sum("held_seconds")));
    const waiting = CLASSES.map((name) => [name, metrics.sum("antiphon_engine_waiting", { class: name })]).filter(([, count]) => count > 0);
    this.#figures.waiting.show(waiting.map(([name, count]) => `${count} ${name}`).join(", ") || "none");
    this.#figures.bytes.show(size(metrics.sum("antiphon_artifact_bytes_total")));
    this.#last = seen;
  }
}

function figure(title, about) {
  const value = el("dd", {}, "–");
  return { element: el("div", { class: "figure", title: about }, el("dt", {}, title), value), show: (text) => setText(value, text) };
}

function size(bytes) {
  if (bytes < 2 ** 20) return `${Math.round(bytes / 1024)} KiB`;
  return bytes < 2 ** 30 ? `${(bytes / 2 ** 20).toFixed(1)} MiB` : `${(bytes / 2 ** 30).toFixed(2)} GiB`;
}
