// The engines of the server: are they well, what do they work on, what waits, over the last two minutes.

import { el, setText } from "../dom.js";
import { duration } from "./sessions-table.js";

const KEPT = 60; // polls in the little picture
const COLUMNS = ["Engine", "Health", "Running", "Waiting", "Last step", "Load", "Notes"];

export class EnginesTable {
  element;
  #body = el("tbody");
  #rows = new Map();

  constructor() {
    const head = COLUMNS.map((title) => el("th", { scope: "col" }, title));
    this.element = el(
      "div",
      { class: "wide" },
      el("table", { class: "engines" }, el("caption", { class: "unseen" }, "Engines"), el("thead", {}, el("tr", {}, ...head)), this.#body),
    );
  }

  /** `engines`: the replicas of `/health` by name. */
  show(engines) {
    for (const [name, row] of this.#rows) {
      if (name in engines) continue;
      row.element.remove();
      this.#rows.delete(name);
    }
    for (const [name, health] of Object.entries(engines)) {
      if (!this.#rows.has(name)) {
        const row = new Row(name);
        this.#rows.set(name, row);
        this.#body.append(row.element);
      }
      this.#rows.get(name).show(health);
    }
  }
}

class Row {
  element;
  #health = el("span", { class: "pill" });
  #running = el("td", { class: "figure" });
  #waiting = el("td", { class: "figure" });
  #step = el("td", { class: "figure" });
  #notes = el("td", { class: "notes" });
  #picture = el("canvas", { class: "spark", width: "120", height: "22", role: "img" });
  #history = [];

  constructor(name) {
    this.element = el(
      "tr",
      {},
      el("th", { scope: "row" }, name),
      el("td", {}, this.#health),
      this.#running,
      this.#waiting,
      this.#step,
      el("td", { class: "load" }, this.#picture),
      this.#notes,
    );
  }

  show(health) {
    this.#health.dataset.state = health.ok ? "well" : "ill";
    setText(this.#health, health.ok ? "well" : "ill");
    setText(this.#running, String(health.running));
    setText(this.#waiting, String(health.waiting));
    this.#waiting.classList.toggle("queued", health.waiting > 0);
    setText(
      this.#step,
      health.last_step_age === null ? "never" : `${health.last_step_age < 1 ? "<1 s" : duration(health.last_step_age)} ago`,
    );
    setText(this.#notes, notes(health));
    this.#history.push(health.running + health.waiting);
    if (this.#history.length > KEPT) this.#history.shift();
    this.#draw();
  }

  #draw() {
    const { width, height } = this.#picture;
    const context = this.#picture.getContext("2d");
    const style = getComputedStyle(this.#picture);
    const most = Math.max(1, ...this.#history);
    context.clearRect(0, 0, width, height);
    context.fillStyle = style.getPropertyValue("--line");
    context.fillRect(0, height - 1, width, 1);
    context.fillStyle = style.getPropertyValue("--accent");
    this.#history.forEach((load, at) => {
      const tall = (load / most) * (height - 2);
      context.fillRect(width - (this.#history.length - at) * 2, height - 1 - tall, 1.5, tall);
    });
    this.#picture.setAttribute("aria-label", `Requests over the last ${this.#history.length} looks, at most ${most}`);
  }
}

function notes(health) {
  const said = health.detail ? [health.detail] : [];
  if (health.memory) said.push(`${Math.round(health.memory / 2 ** 20)} MiB`);
  for (const [name, value] of Object.entries(health.extra ?? {})) said.push(`${name.replaceAll("_", " ")} ${Number(value.toFixed(2))}`);
  return said.join(" · ");
}
