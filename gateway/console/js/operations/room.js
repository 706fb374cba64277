// The operations room: which sessions there are, how the engines are, what waits.

import { ApiError, figures, json, request } from "../api.js";
import { announce, el, setText } from "../dom.js";
import { refusalProblem } from "../problems.js";
import { EnginesTable } from "./engines-table.js";
import { JobsPanel } from "./jobs-panel.js";
import { Polling } from "./polling.js";
import { SessionsTable } from "./sessions-table.js";

const STATUS = { ok: ["good", "Server ready"], degraded: ["bad", "An engine is ill"], draining: ["busy", "Draining"] };

/** A room for `rooms.js`. */
export function build(context) {
  return new OperationsRoom(context);
}

class OperationsRoom {
  element;
  #serverState;
  #notice = el("p", { class: "notice problem", role: "alert", hidden: true });
  #figures = {
    status: figure("Status"),
    sessions: figure("Sessions"),
    waiting: figure("Waiting room"),
    running: figure("Requests running"),
    queued: figure("Requests waiting"),
    version: figure("Version"),
  };
  #sessions = new SessionsTable((id) => this.#end(id));
  #engines = new EnginesTable();
  #jobs = new JobsPanel();
  #polling = new Polling(() => this.#look());

  constructor({ serverState }) {
    this.#serverState = serverState;
    this.element = el(
      "div",
      { class: "room operations" },
      el("h1", { class: "unseen" }, "Operations"),
      this.#notice,
      el("dl", { class: "figures" }, ...Object.values(this.#figures).map(({ element }) => element)),
      el("section", {}, el("h2", {}, "Sessions"), this.#sessions.element),
      el("section", {}, el("h2", {}, "Engines"), this.#engines.element),
      this.#jobs.element,
    );
    json("/version").then(
      ({ version }) => this.#figures.version.show(version),
      () => this.#figures.version.show("–"),
    );
  }

  enter() {
    this.#polling.start();
  }

  leave() {
    this.#polling.stop();
  }

  async #look() {
    try {
      // 503 says that an engine is ill, and which one.
      const [health, sessions, metrics] = await Promise.all([
        request("/health", { accept: [503] }).then((answer) => answer.json()),
        json("/v1/realtime/sessions"),
        request("/metrics").then((answer) => answer.text()),
      ]);
      this.#show(health, sessions.data, figures(metrics));
      this.#jobs.show(metrics);
      this.#notice.hidden = true;
    } catch (error) {
      this.#failed(error);
      throw error;
    }
  }

  #show(health, sessions, load) {
    const engines = Object.values(health.engines);
    const [kind, words] = STATUS[health.status] ?? ["busy", health.status];
    this.#serverState(kind, words);
    this.#figures.status.show(health.status, kind);
    this.#figures.sessions.show(load.capacity ? `${health.sessions} / ${load.capacity}` : String(health.sessions));
    this.#figures.waiting.show(String(load.waiting));
    this.#figures.running.show(String(sum(engines, "running")));
    this.#figures.queued.show(String(sum(engines, "waiting")));
    this.#sessions.show(sessions);
    this.#engines.show(health.engines);
  }

  #failed(error) {
    const { title, advice } =
      error instanceof ApiError ? refusalProblem(error) : { title: "The figures cannot be read.", advice: error.message };
    const again = error.status === 401 ? "" : ` Looking again in ${Math.round(this.#polling.pause / 1000)} s or later.`;
    this.#notice.replaceChildren(el("strong", {}, title), ` ${advice}${again}`);
    this.#notice.hidden = false;
    this.#serverState("bad", error.status === 401 ? "Key needed" : "No answer");
    this.#figures.status.show("–", "bad");
  }

  async #end(id) {
    try {
      await request(`/v1/realtime/sessions/${encodeURIComponent(id)}`, { method: "DELETE", accept: [404] });
      announce("The session was ended.");
    } catch (error) {
      this.#failed(error);
    }
    this.#polling.now();
  }
}

function figure(title) {
  const value = el("dd", {}, "–");
  const show = (text, kind = "") => {
    setText(value, text);
    value.dataset.kind = kind;
  };
  return { element: el("div", { class: "figure" }, el("dt", {}, title), value), show };
}

const sum = (engines, name) => engines.reduce((total, engine) => total + (engine[name] ?? 0), 0);
