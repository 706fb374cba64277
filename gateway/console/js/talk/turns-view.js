// The latency of each turn as a bar: from the end of the user's speech to the first audio, in its parts.

import { el, setText } from "../dom.js";
import { median, PARTS, segments, total } from "./timings.js";

const SHOWN = 12;

/** A bar for each turn, the newest first. Used for the own call and for any session of the server. */
export class TurnsView {
  element;
  #rows = el("ol", { class: "turns" });
  #summary = el("p", { class: "summary" });
  #axis = el("p", { class: "axis", "aria-hidden": "true" });
  #empty;

  constructor(empty = "Nobody has spoken yet.") {
    this.#empty = empty;
    this.element = el("div", { class: "turns-view" }, this.#summary, legend(), this.#rows, this.#axis);
    this.show([]);
  }

  show(turns) {
    const timed = turns
      .map((turn, index) => ({ turn, number: index + 1, parts: segments(turn), total: total(turn) }))
      .filter(({ parts }) => parts.length);
    const shown = timed.slice(-SHOWN).reverse();
    const scale = niceScale(Math.max(...shown.map(({ parts }) => parts.at(-1).to), 0));
    this.element.classList.toggle("none", !shown.length);
    const middle = median(timed.map((each) => each.total).filter((ms) => ms !== null));
    const server = timed.some(({ turn }) => turn.report);
    setText(this.#summary, shown.length ? summary(middle, timed.length, server) : this.#empty);
    this.#rows.replaceChildren(...shown.map((row) => bar(row, scale)));
    this.#axis.replaceChildren(
      ...(shown.length ? [0, 0.25, 0.5, 0.75, 1].map((part) => el("span", {}, axisLabel(part * scale, scale))) : []),
    );
  }
}

function summary(middle, count, server) {
  const turns = count === 1 ? "1 turn" : `${count} turns`;
  const source = server ? "timed by the server" : "as this browser saw it";
  return middle === null ? `${turns}, ${source}` : `Median ${milliseconds(middle)} to the first audio · ${turns}, ${source}`;
}

function legend() {
  return el(
    "ul",
    { class: "legend" },
    ...PARTS.map(({ name, title, about }) => el("li", { title: about, dataset: { part: name } }, title)),
  );
}

function bar({ turn, number, parts, total: ms }, scale) {
  const words = parts.map(({ name, from, to }) => `${titleOf(name)} ${milliseconds(to - from)}`).join(", ");
  const pieces = parts.map(({ name, from, to }) => {
    const piece = el("span", { class: "piece", title: `${titleOf(name)}: ${milliseconds(to - from)}`, dataset: { part: name } });
    piece.style.width = `${(100 * (to - from)) / scale}%`;
    return piece;
  });
  const figure = ms === null ? "…" : milliseconds(ms);
  return el(
    "li",
    { class: turn.status === "cancelled" ? "cut" : "" },
    el("span", { class: "number" }, String(number)),
    el("span", { class: "bar", role: "img", "aria-label": `Turn ${number}: ${words}` }, ...pieces),
    el("span", { class: "figure" }, figure),
  );
}

const titleOf = (name) => PARTS.find((part) => part.name === name).title;

/** 642 ms, 1.24 s. */
export function milliseconds(ms) {
  return ms < 995 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`;
}

function niceScale(longest) {
  return [200, 400, 800, 1200, 1600, 2000, 3000, 4000, 6000, 8000, 12000, 20000, 40000].find((scale) => scale >= longest) ?? longest;
}

function axisLabel(ms, scale) {
  if (ms === 0) return "0";
  return scale < 1600 ? `${Math.round(ms)} ms` : `${Number((ms / 1000).toFixed(2))} s`;
}
