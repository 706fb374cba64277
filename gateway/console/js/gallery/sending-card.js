// What stands in the place of a job until the server has taken it.

import { el, setText } from "../dom.js";
import { mediaProblem } from "./words.js";

export class SendingCard {
  element;
  #state = el("p", { class: "pill" });
  #error = el("p", { class: "error", hidden: true });
  #again;
  #edit;
  #stop;

  /** `actions`: stop(), again(), edit(). */
  constructor(sending, { stop, again, edit }) {
    const button = (title, work) => el("button", { type: "button", class: "quiet", onclick: work }, title);
    this.#again = button("Try now", again);
    this.#edit = button("Change it", edit);
    this.#stop = button("Give up", stop);
    this.element = el(
      "li",
      { class: "card sending" },
      el("div", { class: "standing" }, this.#state),
      el("p", { class: "prompt" }, sending.spec.prompt),
      this.#error,
      el("div", { class: "acts" }, this.#again, this.#edit, this.#stop),
    );
  }

  /** Show how it stands; gives the element. */
  show({ state, error, againAt }) {
    this.element.dataset.state = state;
    this.#state.dataset.state = state === "refused" ? "ill" : "thinking";
    const seconds = Math.max(0, Math.ceil((againAt - Date.now()) / 1000));
    setText(this.#state, state === "sending" ? "Sending" : state === "waiting" ? `Not sent yet. Again in ${seconds} s` : "Refused");
    const problem = error && mediaProblem(error);
    setText(this.#error, problem ? `${problem.title} ${problem.advice}` : "");
    this.#error.hidden = !problem;
    this.#again.hidden = state === "sending";
    this.#edit.hidden = state !== "refused";
    setText(this.#stop, state === "refused" ? "Dismiss" : "Give up");
    return this.element;
  }
}
