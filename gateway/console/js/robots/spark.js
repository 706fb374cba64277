// The round trips of a robot's last chunks, as a little picture.

import { el } from "../dom.js";
import { ms } from "./words.js";

const WIDE = 120;
const TALL = 22;
const STEP = 2;

export class Spark {
  element = el("canvas", { class: "spark", role: "img" });
  #drawn = "";

  /** `rounds` in ms, the oldest first. */
  show(rounds, palette) {
    const state = `${rounds.length} ${rounds.at(-1)} ${rounds.at(-2)} ${palette.name} ${devicePixelRatio}`;
    if (state === this.#drawn) return;
    this.#drawn = state;
    const ratio = devicePixelRatio || 1;
    this.element.width = WIDE * ratio; // clears it, too
    this.element.height = TALL * ratio;
    const context = this.element.getContext("2d");
    context.scale(ratio, ratio);
    context.fillStyle = palette.line;
    context.fillRect(0, TALL - 1, WIDE, 1);
    const usual = [...rounds].sort((one, other) => one - other)[Math.floor(0.9 * (rounds.length - 1))] ?? 0;
    const most = Math.max(1.5 * usual, 1); // a single slow one, like the first, must not flatten the others: it is cut off
    const left = WIDE - rounds.length * STEP;
    context.fillStyle = palette.accent;
    rounds.forEach((round, at) => {
      const tall = Math.max(1, Math.min(1, round / most) * (TALL - 2));
      context.fillRect(left + at * STEP, TALL - 1 - tall, STEP - 0.5, tall);
    });
    const label = rounds.length ? `Round trips of the last ${rounds.length} chunks, at most ${ms(Math.max(...rounds))}` : "No chunk yet";
    this.element.setAttribute("aria-label", label);
    this.element.title = label;
  }
}
