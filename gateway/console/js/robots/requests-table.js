// A robot's last requests in figures: what its picture shows, for those who would rather read it.

import { el, setText } from "../dom.js";
import { ms, spans } from "./words.js";

const SHOWN = 12;
const COLUMNS = ["Request", "Answer", "Epoch", "Waited", "Made in", "In all", "Deadline", "Continues", "Shared by"];

export class RequestsTable {
  element;
  #body = el("tbody");
  #rows = [];

  constructor(id) {
    const head = COLUMNS.map((title) => el("th", { scope: "col" }, title));
    this.element = el(
      "div",
      { class: "wide requests" },
      el("table", {}, el("caption", { class: "unseen" }, `Last requests of ${id}`), el("thead", {}, el("tr", {}, ...head)), this.#body),
    );
  }

  show(chunks) {
    const newest = [...chunks.values()].slice(-SHOWN).reverse();
    while (this.#rows.length < newest.length) this.#add();
    this.#rows.forEach((cells, index) => this.#fill(cells, newest[index]));
  }

  #add() {
    const cells = COLUMNS.map((_, index) => el(index ? "td" : "th", index ? { class: index > 1 ? "number" : null } : { scope: "row" }));
    this.#rows.push(cells);
    this.#body.append(el("tr", {}, ...cells));
  }

  #fill(cells, chunk) {
    cells[0].parentElement.hidden = chunk === undefined;
    if (chunk === undefined) return;
    const { waited, making, round } = spans(chunk);
    const given = chunk.deadline === null ? "–" : ms(1000 * (chunk.deadline - chunk.arrived));
    const batch = chunk.batch === null ? "–" : chunk.batch.toFixed(1);
    const texts = [chunk.number, chunk.status, chunk.epoch, ms(waited), ms(making), ms(round), given, chunk.prefix || "–", batch];
    texts.forEach((text, index) => setText(cells[index], String(text)));
    cells[1].dataset.status = chunk.status;
  }
}
