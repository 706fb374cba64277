// What the pointer is at, in words beside it.

import { el } from "../dom.js";

const BESIDE = 14; // px from the pointer

export class Tip {
  element = el("div", { class: "tip", role: "tooltip", hidden: true });

  /** `about`: `{ title, lines }`, null hides it; at a place of the window. */
  show(about, x, y) {
    if (about === null) return this.hide();
    this.element.replaceChildren(el("strong", {}, about.title), ...about.lines.map((line) => el("p", {}, line)));
    this.element.hidden = false;
    const { width, height } = this.element.getBoundingClientRect();
    const left = x + BESIDE + width < innerWidth ? x + BESIDE : Math.max(4, x - BESIDE - width);
    const top = y + BESIDE + height < innerHeight ? y + BESIDE : Math.max(4, y - BESIDE - height);
    this.element.style.left = `${left}px`;
    this.element.style.top = `${top}px`;
  }

  hide() {
    this.element.hidden = true;
  }
}
