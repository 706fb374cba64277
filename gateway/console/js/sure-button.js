// A button for what cannot be undone.

import { el, setText } from "./dom.js";

const SURE_FOR = 4000; // ms in which a second press counts

/** A quiet button that must be pressed twice; `question` is what it says in between. */
export function sureButton(title, question, work) {
  let timer = null;
  const calm = () => {
    clearTimeout(timer);
    timer = null;
    button.classList.remove("sure");
    setText(button, title);
  };
  const press = () => {
    if (timer !== null) {
      calm();
      work();
      return;
    }
    button.classList.add("sure");
    setText(button, question);
    timer = setTimeout(calm, SURE_FOR);
  };
  const button = el("button", { type: "button", class: "quiet", onclick: press }, title);
  return button;
}
