// Who speaks when: the two levels of the last seconds, the user's above the line and the assistant's below it.

import { el } from "../dom.js";

const SPAN = 14; // seconds in view
const RATE = 30; // samples a second, with reduced motion only the two meters move

const still = window.matchMedia("(prefers-reduced-motion: reduce)");

/** A level (root mean square 0..1) as a height 0..1: 50 dB of range. */
export function height(level) {
  return level < 1e-5 ? 0 : Math.max(0, Math.min(1, (20 * Math.log10(level) + 54) / 48));
}

export class ScoreView {
  element;
  #canvas = el("canvas", { "aria-hidden": "true" });
  #meters = { input: meter("You"), output: meter("Antiphon") };
  #history = [];
  #levels = null;
  #timer = null;
  #colors = null;

  constructor() {
    this.element = el(
      "div",
      { class: "score" },
      el("div", { class: "meters" }, this.#meters.input.element, this.#meters.output.element),
      this.#canvas,
    );
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.#colors = null;
      this.#draw();
    });
    new ResizeObserver(() => this.#draw()).observe(this.#canvas);
  }

  /** Follow a call's levels: `levels()` gives `{ input, output }`. */
  start(levels) {
    this.stop();
    this.#history = [];
    this.#levels = levels;
    this.#timer = setInterval(() => this.#sample(), 1000 / RATE);
  }

  stop() {
    clearInterval(this.#timer);
    this.#timer = null;
    this.#meters.input.show(0);
    this.#meters.output.show(0);
  }

  #sample() {
    const { input, output } = this.#levels();
    this.#history.push([height(input), height(output)]);
    if (this.#history.length > SPAN * RATE) this.#history.shift();
    if (document.hidden) return;
    this.#meters.input.show(height(input));
    this.#meters.output.show(height(output));
    if (!still.matches) this.#draw();
  }

  #draw() {
    const { clientWidth: width, clientHeight: tall } = this.#canvas;
    if (!width || !tall) return;
    const ratio = window.devicePixelRatio || 1;
    if (this.#canvas.width !== Math.round(width * ratio)) this.#canvas.width = Math.round(width * ratio);
    if (this.#canvas.height !== Math.round(tall * ratio)) this.#canvas.height = Math.round(tall * ratio);
    const context = this.#canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, tall);
    this.#colors ??= colors(this.element);
    const middle = tall / 2;
    context.fillStyle = this.#colors.line;
    context.fillRect(0, middle - 0.5, width, 1);
    const step = width / (SPAN * RATE);
    const start = width - this.#history.length * step;
    // Bars of three pixels: a level in each is the loudest of its time.
    const group = Math.max(1, Math.round(3 / step));
    for (let at = 0; at < this.#history.length; at += group) {
      const x = start + at * step;
      let [up, down] = [0, 0];
      for (const [input, output] of this.#history.slice(at, at + group)) [up, down] = [Math.max(up, input), Math.max(down, output)];
      const wide = Math.max(1, group * step - 1);
      context.fillStyle = this.#colors.input;
      if (up > 0.02) context.fillRect(x, middle - 1 - up * (middle - 2), wide, up * (middle - 2));
      context.fillStyle = this.#colors.output;
      if (down > 0.02) context.fillRect(x, middle + 1, wide, down * (middle - 2));
    }
  }
}

function colors(element) {
  const style = getComputedStyle(element);
  return {
    input: style.getPropertyValue("--user").trim(),
    output: style.getPropertyValue("--accent").trim(),
    line: style.getPropertyValue("--line").trim(),
  };
}

function meter(name) {
  const fill = el("span", { class: "fill" });
  const element = el(
    "div",
    { class: "meter", "aria-hidden": "true" },
    el("span", { class: "name" }, name),
    el("span", { class: "track" }, fill),
  );
  return { element, show: (level) => (fill.style.transform = `scaleX(${level.toFixed(3)})`) };
}
