// What the talk room has to say beside the conversation: problems and what to do, and news from the server.

import { el } from "../dom.js";

const SHOWN = 3;

/** A few notices at most; the oldest go first. */
export class Notices {
  element = el("div", { class: "notices", role: "alert" });

  /** Something went wrong: what, and what to do. `code` is for programs. */
  problem(title, advice, code = "") {
    this.#add("problem", title, advice, code);
  }

  /** Something to know. */
  note(title, advice = "") {
    this.#add("note", title, advice, "");
  }

  clear() {
    this.element.replaceChildren();
  }

  #add(kind, title, advice, code) {
    const close = el("button", { type: "button", class: "quiet close", "aria-label": "Dismiss", onclick: () => notice.remove() }, "×");
    const notice = el(
      "div",
      { class: `notice ${kind}`, dataset: { code } },
      el("p", {}, el("strong", {}, title), advice ? ` ${advice}` : ""),
      close,
    );
    this.element.append(notice);
    while (this.element.childElementCount > SHOWN) this.element.firstElementChild.remove();
  }
}
