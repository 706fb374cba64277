// The conversation on the page: a line an item, the part of an answer that nobody heard struck out.

import { announce, el, onFrame, setText } from "../dom.js";
import { lengthAt } from "./conversation.js";
import { total } from "./timings.js";
import { milliseconds } from "./turns-view.js";

const WHO = { user: "You", assistant: "Antiphon", tool: "Tool" };

/** Shows the conversation of the call that `follow` is given. */
export class ConversationView {
  element;
  #list = el("ol", { class: "lines" });
  #latest = el("button", { type: "button", class: "latest", hidden: true, onclick: () => this.#toEnd() }, "↓ Latest");
  #welcome;
  #scroller;
  #rows = new Map();
  #following = true; // the reader is at the end and wants to stay there
  #call = null;
  #announced = new Set();

  constructor(welcome) {
    this.#welcome = welcome;
    this.#scroller = el(
      "div",
      { class: "scroller", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Transcript" },
      welcome,
      this.#list,
    );
    this.#scroller.addEventListener("scroll", () => {
      this.#following = this.#atEnd();
      this.#latest.hidden = this.#following;
    });
    new ResizeObserver(() => this.#following && this.#toEnd()).observe(this.#scroller);
    this.element = el("section", { class: "conversation", "aria-label": "Conversation" }, this.#scroller, this.#latest);
    this.render = onFrame(() => this.#render());
  }

  follow(call) {
    this.#call = call;
    this.#rows.clear();
    this.#announced.clear();
    this.#following = true;
    this.#list.replaceChildren();
    this.render();
  }

  /** Called some times a second: how far the answer that is being heard has come. */
  progress() {
    if (this.#call?.transport?.playing) for (const line of this.#call.conversation.lines.slice(-2)) this.#fill(line);
  }

  /** Everything as text, to copy. */
  text() {
    return (this.#call?.conversation.lines ?? [])
      .filter((line) => line.text)
      .map(
        (line) =>
          `${WHO[line.role] ?? line.role}: ${line.kept === null ? line.text : `${line.text.slice(0, line.kept)} [not heard: ${line.text.slice(line.kept).trim()}]`}`,
      )
      .join("\n");
  }

  #render() {
    if (!this.#call) return;
    const { conversation } = this.#call;
    const changed = conversation.changes();
    for (const [id, row] of this.#rows) {
      if (!conversation.find(id)) {
        row.element.remove();
        this.#rows.delete(id);
      }
    }
    let before = null;
    for (const line of conversation.lines) {
      if (!this.#rows.has(line.id)) this.#rows.set(line.id, makeRow(line));
      const { element } = this.#rows.get(line.id);
      const wanted = before ? before.nextSibling : this.#list.firstChild;
      if (element !== wanted) this.#list.insertBefore(element, wanted);
      before = element;
      if (changed.has(line.id)) {
        this.#fill(line);
        this.#speak(line);
      }
    }
    this.#welcome.hidden = conversation.lines.length > 0;
    this.#timings();
    if (this.#following) this.#toEnd();
    else this.#latest.hidden = false;
  }

  #fill(line) {
    const row = this.#rows.get(line.id);
    if (!row) return;
    row.element.dataset.state = line.state;
    row.element.classList.toggle("empty", !line.text.trim());
    const blank = line.kept === null ? 0 : line.text.slice(line.kept).match(/^\s*/)[0].length;
    const end = (line.kept ?? line.text.length) + blank;
    const heard = line.kept === null ? this.#heardSoFar(line) : end;
    setText(row.heard, line.text.slice(0, Math.min(heard, end)));
    setText(row.coming, line.text.slice(Math.min(heard, end), end));
    const unheard = line.text.slice(end);
    row.unheard.hidden = !unheard.trim();
    setText(row.struck, unheard);
    setText(row.note, noteOf(line));
    row.note.hidden = !row.note.textContent;
  }

  #heardSoFar(line) {
    const ms = line.role === "assistant" && line.speech ? this.#call.transport?.heardMs(line.id) : null;
    return ms === null || ms === undefined ? line.text.length : lengthAt(line, ms);
  }

  #timings() {
    const { conversation, timings } = this.#call;
    for (const turn of timings.turns) {
      const ms = total(turn);
      if (ms === null || turn.responseId === null) continue;
      const line = conversation.lines.find((each) => each.role === "assistant" && each.responseId === turn.responseId);
      const row = line && this.#rows.get(line.id);
      if (row) setText(row.latency, milliseconds(ms));
    }
  }

  /** Whole lines only are read out: a screen reader that follows every delta cannot be followed. */
  #speak(line) {
    if (line.state !== "done" || !line.text.trim() || this.#announced.has(line.id)) return;
    this.#announced.add(line.id);
    announce(`${WHO[line.role] ?? ""}: ${line.kept === null ? line.text : line.text.slice(0, line.kept)}`);
  }

  #atEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    return scrollHeight - scrollTop - clientHeight < 40;
  }

  #toEnd() {
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#latest.hidden = true;
  }
}

function makeRow(line) {
  const row = {
    heard: el("span"),
    coming: el("span", { class: "coming" }),
    struck: el("s"),
    note: el("p", { class: "note", hidden: true }),
    latency: el("span", { class: "latency", title: "From the end of your speech to the first audio" }),
  };
  row.unheard = el("span", { class: "unheard", hidden: true }, el("span", { class: "unseen" }, " Not heard: "), row.struck);
  row.element = el(
    "li",
    { class: `line ${line.role}`, dataset: { item: line.id } },
    el("p", { class: "who" }, el("span", { class: "name" }, WHO[line.role] ?? line.role), el("time", {}, clock(line.at)), row.latency),
    el("p", { class: "said" }, row.heard, row.coming, row.unheard),
    row.note,
  );
  return row;
}

function noteOf(line) {
  if (line.note) return line.note;
  const cut = line.kept !== null && line.kept < line.text.length;
  if (!cut) return "";
  return line.heardMs
    ? `Interrupted after ${(line.heardMs / 1000).toFixed(1)} s; the struck words were not heard and are not remembered.`
    : "Interrupted; the struck words were not heard and are not remembered.";
}

/** Time since the call began as m:ss. */
export function clock(ms) {
  const seconds = Math.floor(ms / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}
