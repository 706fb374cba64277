// A robot: who it is, what it is told to do, how it fares, and its chunks as they come.

import { el, setText } from "../dom.js";
import { palette } from "./palette.js";
import { RequestsTable } from "./requests-table.js";
import { Spark } from "./spark.js";
import { Track } from "./track.js";
import { STATES, ms, success } from "./words.js";

const TROUBLES = ["late", "superseded", "fenced", "refused", "failed"];

export class Card {
  element;
  near = true; // in sight, or nearly
  #track;
  #spark = new Spark();
  #state = el("span", { class: "pill" });
  #policy = el("span", { class: "policy" });
  #prompt = el("p", { class: "prompt" });
  #where = el("span", { class: "where" });
  #round = el("span", { class: "value" });
  #spread = el("span", { class: "aside" });
  #success = el("span", { class: "value" });
  #unknown = el("span", { class: "aside" });
  #troubles = el("span", { class: "troubles" });
  #toggle;
  #requests = null;
  #robot = null;
  #id;

  /** `point(about, x, y)`: see `Track`. */
  constructor(id, point) {
    this.#id = id;
    this.#track = new Track(point);
    this.#toggle = el(
      "button",
      { type: "button", class: "id", "aria-expanded": "false", title: "Show the last requests", onclick: () => this.#open() },
      id,
    );
    const figure = (name, title, ...parts) => el("div", { class: `fact ${name}`, title }, el("span", { class: "name" }, title), ...parts);
    this.element = el(
      "li",
      { class: "robot" },
      el("div", { class: "who" }, el("h2", {}, this.#toggle), this.#state, this.#policy, this.#where),
      this.#prompt,
      this.#track.element,
      el(
        "div",
        { class: "facts" },
        figure("round", "Round trip", this.#round, this.#spread, this.#spark.element),
        figure("success", "Success", this.#success, this.#unknown),
        figure("trouble", "Without a chunk", this.#troubles),
      ),
    );
  }

  set compact(compact) {
    this.#track.compact = compact;
  }

  show(robot) {
    this.#robot = robot;
    const { report, goneAt, rounds } = robot;
    const state = goneAt !== null ? "gone" : report.state;
    this.element.classList.toggle("gone", goneAt !== null);
    this.#state.dataset.state = state;
    setText(this.#state, STATES[state] ?? state);
    setText(this.#policy, report.policy);
    setText(this.#prompt, report.prompt || "No prompt yet");
    this.#prompt.title = report.prompt;
    this.#prompt.classList.toggle("none", !report.prompt);
    setText(this.#where, `epoch ${report.epoch}${report.episode === null ? "" : ` · episode ${short(report.episode)}`}`);
    this.#where.title = report.episode === null ? "" : `Episode ${report.episode}`;
    const { p50, p99 } = report.round_ms;
    setText(this.#round, ms(p50));
    setText(this.#spread, p99 === null ? "" : `99 % within ${ms(p99)}`);
    this.#spark.show(rounds, palette());
    setText(this.#success, success(report.episodes));
    this.#success.dataset.kind = report.episodes.failure ? "" : report.episodes.success ? "good" : "";
    setText(this.#unknown, report.episodes.unknown ? `${report.episodes.unknown} unknown` : "");
    const troubles = TROUBLES.filter((status) => report.answers[status]);
    setText(this.#troubles, troubles.map((status) => `${report.answers[status]} ${status}`).join(", ") || "none");
    this.#track.show(robot);
    this.#requests?.show(robot.chunks);
  }

  draw(now) {
    this.#track.draw(now);
  }

  get held() {
    return this.#track.pointing !== null;
  }

  free() {
    this.#track.free();
  }

  #open() {
    const open = this.#requests === null;
    this.#toggle.setAttribute("aria-expanded", String(open));
    if (!open) {
      this.#requests.element.remove();
      this.#requests = null;
      return;
    }
    this.#requests = new RequestsTable(this.#id);
    this.#requests.show(this.#robot.chunks);
    this.element.append(this.#requests.element);
  }
}

/** Episodes have names that machines gave them. */
function short(episode) {
  const text = String(episode);
  return text.length > 20 ? `${text.slice(0, 8)}…${text.slice(-8)}` : text;
}
