// A robot's last seconds as a picture that scrolls: each chunk a bar from its observation's arrival until its actions are used up.

import { el } from "../dom.js";
import { inLanes } from "./fleet.js";
import { palette } from "./palette.js";
import { about } from "./words.js";

const PAST = 9; // seconds in view, fewer where there is little room
const AHEAD = 1; // seconds after the present: what is still to be executed
const SECOND = 62; // px that a second has at least
const LANES = 3;
const SIZES = {
  roomy: { marks: 14, lane: 12, gap: 3, axis: 15, symbol: 3.5 },
  compact: { marks: 8, lane: 5, gap: 1, axis: 2, symbol: 2.5 },
};
const LABEL = 28; // px that a label takes
const REACH = 6; // px around the pointer

export class Track {
  element = el("canvas", { class: "track", role: "img" });
  pointing = null; // where the pointer is, which stops the picture
  #robot = null;
  #size = SIZES.roomy;
  #wide = 0;
  #view = null; // the server's time at the line of the present
  #resized = new ResizeObserver(([{ contentRect }]) => this.#fit(contentRect));

  /** `point(about, x, y)` is told what the pointer is at, null: nothing. */
  constructor(point) {
    const at = ({ offsetX, offsetY, clientX, clientY }) => {
      this.pointing = { x: offsetX, y: offsetY };
      point(this.#at(offsetX, offsetY), clientX, clientY);
    };
    const away = () => {
      this.pointing = null;
      point(null);
    };
    this.element.addEventListener("pointermove", at);
    this.element.addEventListener("pointerdown", at);
    for (const name of ["pointerleave", "pointercancel"]) this.element.addEventListener(name, away);
    this.#resized.observe(this.element);
  }

  set compact(compact) {
    this.#size = compact ? SIZES.compact : SIZES.roomy;
    const { marks, lane, gap, axis } = this.#size;
    this.element.style.height = `${marks + LANES * (lane + gap) - gap + axis}px`;
  }

  free() {
    this.#resized.disconnect();
  }

  show(robot) {
    this.#robot = robot;
    const counts = new Map();
    for (const { status } of robot.chunks.values()) counts.set(status, (counts.get(status) ?? 0) + 1);
    const said = [...counts].map(([status, count]) => `${count} ${status}`).join(", ");
    const label = `Last requests of ${robot.report.id}: ${said || "none"}`;
    if (this.element.getAttribute("aria-label") !== label) this.element.setAttribute("aria-label", label);
  }

  /** Draw as of `now`, unless somebody is pointing at something. */
  draw(now) {
    if (this.#robot === null || !this.#wide) return;
    if (this.pointing === null || this.#view === null) this.#view = now;
    const context = this.element.getContext("2d");
    const ratio = devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.#wide, this.element.height);
    const colours = palette();
    this.#grid(context, colours);
    this.#chunks(context, colours);
    this.#marks(context, colours);
    this.#present(context, colours);
  }

  #fit({ width, height }) {
    const ratio = devicePixelRatio || 1;
    this.#wide = width;
    this.element.width = Math.round(width * ratio);
    this.element.height = Math.round(height * ratio);
    if (this.#view !== null) this.draw(this.#view);
  }

  // ---- where things are ----

  get #past() {
    return Math.max(3, Math.min(PAST, this.#wide / SECOND - AHEAD));
  }

  #x(time) {
    return ((time - this.#view + this.#past) / (this.#past + AHEAD)) * this.#wide;
  }

  #y(lane) {
    return this.#size.marks + lane * (this.#size.lane + this.#size.gap);
  }

  /** A time that has come, as seen from the line of the present. */
  #come(time) {
    return time !== null && time <= this.#view ? time : null;
  }

  get #foot() {
    return this.#y(LANES) - this.#size.gap;
  }

  /** When the actions of a chunk end: they are used up, or a fence forbids the rest. */
  #end({ left }) {
    const end = left + this.#robot.lasts;
    return this.#robot.fences.reduce((soonest, { at }) => (at > left && at < soonest ? at : soonest), end);
  }

  /** When a request that came to nothing was answered, or given up. */
  #answered({ left, arrived }) {
    return left ?? this.#robot.fences.find(({ at }) => at >= arrived)?.at ?? arrived;
  }

  // ---- drawing ----

  #grid(context, colours) {
    const foot = this.#foot;
    context.fillStyle = colours.line;
    context.fillRect(0, foot + 1, this.#wide, 1);
    const roomy = this.#size === SIZES.roomy;
    context.font = `10px ${colours.font}`;
    context.textBaseline = "bottom";
    context.textAlign = "center";
    for (let ago = 1; ago <= this.#past; ago++) {
      const x = Math.round(this.#x(this.#view - ago));
      context.fillStyle = colours.line;
      context.fillRect(x, this.#size.marks - 2, 1, foot - this.#size.marks + 3 + (roomy ? 3 : 0));
      if (!roomy || ago % 2 || this.#robot.fences.some(({ at }) => Math.abs(this.#x(at) - x) < LABEL)) continue;
      context.fillStyle = colours.faint;
      context.fillText(`−${ago} s`, x, foot + this.#size.axis);
    }
  }

  #chunks(context, colours) {
    const sent = [];
    for (const chunk of this.#robot.chunks.values()) {
      if (!inLanes(chunk) || chunk.arrived > this.#view) continue;
      const colour = colours.epochs[chunk.epoch % colours.epochs.length];
      this.#making(context, colours, chunk, colour);
      if (chunk.status === "chunk" && this.#come(chunk.left) !== null) sent.push([chunk, colour]);
      if (chunk.deadline !== null) this.#deadline(context, colours, chunk);
    }
    sent.forEach(([chunk, colour], index) => this.#executing(context, chunk, colour, sent[index + 1]?.[0]));
    context.globalAlpha = 1;
  }

  /** From the arrival to the answer: a thin line while it waits and while it is sent, full while the policy works on it. */
  #making(context, colours, { lane, arrived, begun, made, left }, colour) {
    const [top, tall] = [this.#y(lane), this.#size.lane];
    const thin = Math.max(1.5, tall / 5);
    const end = this.#come(left) ?? this.#view;
    const start = this.#x(arrived);
    const work = this.#x(this.#come(begun) ?? end);
    const done = this.#x(this.#come(made) ?? end);
    context.fillStyle = colours.faint;
    context.fillRect(start, top + (tall - thin) / 2, work - start, thin);
    context.fillStyle = colour;
    if (this.#come(begun) !== null) context.fillRect(work, top, Math.max(2, done - work), tall);
    context.fillRect(done, top + (tall - thin) / 2, this.#x(end) - done, thin);
  }

  /** From the answer until the actions end; what a newer chunk has taken over is paler. */
  #executing(context, chunk, colour, next) {
    const top = this.#y(chunk.lane);
    const [from, to] = [this.#x(chunk.left), this.#x(this.#end(chunk))];
    if (to < 0) return;
    const over = next && next.epoch === chunk.epoch ? Math.max(from, Math.min(to, this.#x(next.left))) : to;
    context.fillStyle = colour;
    context.globalAlpha = 0.42;
    context.fillRect(from, top, over - from, this.#size.lane);
    context.globalAlpha = 0.16;
    context.fillRect(over, top, to - over, this.#size.lane);
    context.globalAlpha = 1;
  }

  /** While it is to be kept; afterwards within the chunk's own bar only, since it would stand in the way of others. */
  #deadline(context, colours, chunk) {
    const { lane, deadline } = chunk;
    if (this.#come(chunk.left) !== null && deadline > this.#end(chunk)) return;
    const x = this.#x(deadline);
    if (x < 0 || x > this.#wide) return;
    const top = this.#y(lane);
    context.fillStyle = colours.faint;
    context.fillRect(x - 0.5, top, 1, this.#size.lane);
    context.beginPath();
    context.moveTo(x - 2, top);
    context.lineTo(x + 2, top);
    context.lineTo(x, top + 3);
    context.fill();
  }

  #marks(context, colours) {
    for (const fence of this.#robot.fences) this.#fence(context, colours, fence);
    const y = this.#size.marks / 2;
    for (const chunk of this.#robot.chunks.values()) {
      if (inLanes(chunk)) continue;
      const at = this.#answered(chunk);
      if (at > this.#view) continue;
      const [from, to] = [this.#x(chunk.arrived), this.#x(at)];
      context.fillStyle = colours.edge;
      if (to - from > 2) context.fillRect(from, y - 0.5, to - from, 1);
      (SYMBOLS[chunk.status] ?? SYMBOLS.failed)(context, colours, to, y, this.#size.symbol);
    }
  }

  #fence(context, colours, { epoch, at }) {
    const x = Math.round(this.#x(at));
    if (at > this.#view || x < 0) return;
    const foot = this.#foot;
    context.fillStyle = colours.ink;
    context.globalAlpha = 0.75;
    for (let y = 0; y < foot + 1; y += 5) context.fillRect(x, y, 1, 3);
    context.globalAlpha = 1;
    if (this.#size !== SIZES.roomy || this.#x(this.#view) - x < LABEL) return;
    context.fillStyle = colours.epochs[epoch % colours.epochs.length];
    context.font = `10px ${colours.font}`;
    context.textAlign = "left";
    context.textBaseline = "bottom";
    context.fillText(String(epoch), x + 3, foot + this.#size.axis);
  }

  #present(context, colours) {
    const x = Math.round(this.#x(this.#view));
    context.fillStyle = colours.accent;
    context.fillRect(x, 0, 1, this.#foot + 2);
    if (this.#size !== SIZES.roomy) return;
    context.font = `10px ${colours.font}`;
    context.textAlign = "center";
    context.textBaseline = "bottom";
    context.fillText(this.pointing ? "held" : "now", Math.min(x, this.#wide - 12), this.#foot + this.#size.axis);
  }

  // ---- pointing ----

  #at(x, y) {
    if (this.#robot === null || this.#view === null) return null;
    const chunks = [...this.#robot.chunks.values()].filter(({ arrived }) => arrived <= this.#view);
    const marked = chunks.filter((chunk) => !inLanes(chunk) && this.#answered(chunk) <= this.#view);
    const near = nearest(marked, (chunk) => Math.abs(this.#x(this.#answered(chunk)) - x));
    if (near !== null && y <= this.#size.marks + 2) return about(near);
    const lane = Math.min(LANES - 1, Math.max(0, Math.floor((y - this.#size.marks) / (this.#size.lane + this.#size.gap))));
    const covers = (chunk) => {
      const end = chunk.left === null ? this.#view : this.#end(chunk);
      return this.#x(chunk.arrived) - 1 <= x && x <= Math.max(this.#x(end), this.#x(chunk.arrived) + 3);
    };
    const covering = chunks.filter((chunk) => inLanes(chunk) && covers(chunk));
    const chosen = covering.findLast((chunk) => chunk.lane === lane);
    if (chosen !== undefined) return about(chosen);
    const fence = nearest(this.#robot.fences.filter(({ at }) => at <= this.#view), ({ at }) => Math.abs(this.#x(at) - x));
    if (fence !== null) return { title: `Epoch ${fence.epoch} begins`, lines: ["A fence: nothing from before it is executed."] };
    if (covering.length) return about(covering.at(-1));
    return near === null ? null : about(near);
  }
}

/** What lies within reach and nearest, or null. */
function nearest(things, distance) {
  let best = null;
  let least = REACH;
  for (const thing of things) {
    const far = distance(thing);
    if (far <= least) [best, least] = [thing, far];
  }
  return best;
}

function cross(context, colours, x, y, size) {
  context.strokeStyle = colours.bad;
  context.lineWidth = 1.75;
  context.beginPath();
  context.moveTo(x - size, y - size);
  context.lineTo(x + size, y + size);
  context.moveTo(x + size, y - size);
  context.lineTo(x - size, y + size);
  context.stroke();
}

const SYMBOLS = {
  refused: cross,
  failed: cross,
  late(context, colours, x, y, size) {
    context.fillStyle = colours.busy;
    context.beginPath();
    context.moveTo(x - size - 0.5, y - size);
    context.lineTo(x + size + 0.5, y - size);
    context.lineTo(x, y + size);
    context.fill();
  },
  superseded(context, colours, x, y, size) {
    context.strokeStyle = colours.dim;
    context.fillStyle = colours.panel;
    context.lineWidth = 1.25;
    context.beginPath();
    context.moveTo(x, y - size);
    context.lineTo(x + size, y);
    context.lineTo(x, y + size);
    context.lineTo(x - size, y);
    context.closePath();
    context.fill();
    context.stroke();
  },
  fenced(context, colours, x, y, size) {
    context.fillStyle = colours.dim;
    context.fillRect(x - 2.5, y - size, 1.5, 2 * size);
    context.fillRect(x + 1, y - size, 1.5, 2 * size);
  },
};
