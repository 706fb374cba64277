// The controls of a call: connect, mute, push to talk, interrupt, write.

import { el, setText, typing } from "../dom.js";

const STATES = {
  off: "Not connected",
  connecting: "Connecting…",
  listening: "Listening",
  hearing: "You are speaking",
  thinking: "Thinking",
  speaking: "Speaking",
};

export class Deck {
  element;
  #call = null;
  #actions;
  #state = el(
    "p",
    { class: "state", dataset: { state: "off" } },
    el("span", { class: "dot", "aria-hidden": "true" }),
    el("span", { class: "words" }),
  );
  #connect = el("button", { type: "button", class: "primary", onclick: () => this.#actions.toggle() }, "Start talking");
  #mute = el(
    "button",
    { type: "button", class: "when-talking", "aria-pressed": "false", onclick: () => this.#toggleMute() },
    "Mute",
    key("M"),
  );
  #hold = el("button", { type: "button", class: "hold" }, "Hold to talk", key("Space"));
  #interrupt = el("button", { type: "button", class: "when-talking", onclick: () => this.#call?.interrupt() }, "Interrupt", key("Esc"));
  #text = el("input", {
    type: "text",
    placeholder: "Or write something",
    "aria-label": "Write to Antiphon",
    autocomplete: "off",
    enterkeyhint: "send",
  });
  #send = el("button", { type: "submit" }, "Send");
  #writing = el("form", { class: "writing", onsubmit: (event) => this.#write(event) }, this.#text, this.#send);

  /** `actions.toggle()` starts or ends a call. `score` is the picture of the levels. */
  constructor(actions, score) {
    this.#actions = actions;
    this.element = el(
      "section",
      { class: "deck", "aria-label": "Call" },
      el("div", { class: "board" }, this.#state, score),
      el("div", { class: "buttons" }, this.#connect, this.#hold, this.#mute, this.#interrupt, this.#writing),
    );
    this.#hold.addEventListener("pointerdown", (event) => {
      this.#hold.setPointerCapture(event.pointerId);
      this.#call?.press();
    });
    for (const name of ["pointerup", "pointercancel", "lostpointercapture"]) this.#hold.addEventListener(name, () => this.#call?.release());
    this.#hold.addEventListener("contextmenu", (event) => event.preventDefault()); // a long touch is no wish for a menu
    document.addEventListener("keydown", (event) => this.#keyDown(event));
    document.addEventListener("keyup", (event) => this.#keyUp(event));
    window.addEventListener("blur", () => this.#call?.release());
    this.update();
  }

  follow(call, connecting = false) {
    this.#call = call;
    this.update(connecting);
  }

  update(connecting = false) {
    const call = this.#call;
    const state = call ? call.state : connecting ? "connecting" : "off";
    const running = call !== null && state !== "connecting";
    const manual = running && call.manual && call.hasMicrophone;
    const silent = running && call.muted && !manual && state === "listening";
    this.#state.dataset.state = silent ? "muted" : state;
    setText(this.#state.querySelector(".words"), silent ? "Muted" : manual && state === "listening" ? "Waiting for you" : STATES[state]);
    setText(this.#connect, running ? "End" : connecting || call ? "Cancel" : "Start talking");
    this.#connect.classList.toggle("ending", running || connecting || call !== null);
    this.#hold.hidden = !manual;
    this.#hold.classList.toggle("held", running && call.held);
    this.#mute.hidden = !running || manual || !call.hasMicrophone;
    this.#mute.setAttribute("aria-pressed", String(running && call.muted));
    this.#mute.firstChild.textContent = running && call.muted ? "Unmute" : "Mute";
    this.#interrupt.hidden = !running;
    this.#interrupt.disabled = !["speaking", "thinking"].includes(state);
    this.#writing.hidden = !running;
  }

  #toggleMute() {
    this.#call?.mute(!this.#call.muted);
  }

  #write(event) {
    event.preventDefault();
    const text = this.#text.value.trim();
    if (!text || !this.#call) return;
    this.#call.write(text);
    this.#text.value = "";
  }

  #keyDown(event) {
    if (!this.#call || event.ctrlKey || event.metaKey || event.altKey || !this.element.isConnected || this.element.closest("[hidden]"))
      return;
    if (event.key === "Escape" && !this.#interrupt.disabled) this.#call.interrupt();
    if (typing(event.target)) return;
    if (event.key.toLowerCase() === "m" && !this.#mute.hidden && !event.repeat) this.#toggleMute();
    if (event.code !== "Space" || this.#hold.hidden || operates(event.target, this.#hold)) return;
    event.preventDefault();
    if (!event.repeat) this.#call.press();
  }

  #keyUp(event) {
    if (event.code !== "Space" || !this.#call?.held) return;
    event.preventDefault();
    this.#call.release();
  }
}

/** Whether the space bar works this control itself. */
function operates(target, hold) {
  const control = target.closest?.("button, summary, a");
  return Boolean(control) && control !== hold;
}

function key(name) {
  return el("kbd", { "aria-hidden": "true" }, name);
}
