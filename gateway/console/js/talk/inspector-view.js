// The event inspector: what went over the wire, filtered, paused, copied.

import { announce, copy, el, onFrame, setText } from "../dom.js";
import { gist, LIMIT, matcher } from "./event-log.js";

const DIRECTIONS = [
  ["all", "All"],
  ["sent", "Sent"],
  ["received", "Received"],
  ["errors", "Errors"],
];

export class InspectorView {
  element;
  #log;
  #rows = new Map(); // by the entry's id: what is on the page
  #list = el("ol", { class: "events", tabindex: "0", "aria-label": "Events" });
  #status = el("p", { class: "summary" });
  #filter = el("input", {
    type: "search",
    class: "filter",
    placeholder: "Filter: response -audio",
    "aria-label": "Filter events by words; a minus leaves them out",
    spellcheck: "false",
  });
  #direction = el("select", { "aria-label": "Which events" }, ...DIRECTIONS.map(([value, title]) => el("option", { value }, title)));
  #pause = el("button", { type: "button", "aria-pressed": "false", onclick: () => this.#toggle() }, "Pause");
  #matches = matcher("");

  constructor(log) {
    this.#log = log;
    const refilter = () => this.#refilter();
    this.#filter.addEventListener("input", refilter);
    this.#direction.addEventListener("change", refilter);
    const copyAll = el(
      "button",
      { type: "button", class: "quiet", title: "Copy the events shown, as JSON lines", onclick: () => this.#copyAll(copyAll) },
      "Copy all",
    );
    const clear = el("button", { type: "button", class: "quiet", onclick: () => this.#clear() }, "Clear");
    this.element = el(
      "div",
      { class: "inspector" },
      el("div", { class: "toolbar" }, this.#filter, this.#direction, this.#pause),
      this.#list,
      el("footer", {}, this.#status, copyAll, clear),
    );
    this.render = onFrame(() => this.#render());
    this.render();
  }

  #render() {
    const shown = this.#log.shown(this.#matches);
    const stay = this.#list.scrollHeight - this.#list.scrollTop - this.#list.clientHeight < 30;
    const present = new Set(shown.map((entry) => entry.id));
    for (const [id, row] of this.#rows) {
      if (present.has(id)) continue;
      row.element.remove();
      this.#rows.delete(id);
    }
    for (const entry of shown) {
      const row = this.#rows.get(entry.id);
      if (row) row.recount();
      else this.#append(entry);
    }
    if (stay) this.#list.scrollTop = this.#list.scrollHeight;
    const total = this.#log.entries.length;
    const count = shown.length === total ? `${total} events` : `${shown.length} of ${total} events`;
    const bound = total >= LIMIT ? `, the last ${LIMIT}` : "";
    setText(this.#status, this.#log.paused ? `${count} · paused, ${this.#log.missed} since then not kept` : `${count}${bound}`);
  }

  #append(entry) {
    const row = makeRow(entry);
    this.#rows.set(entry.id, row);
    this.#list.append(row.element);
  }

  #refilter() {
    this.#matches = matcher(this.#filter.value, this.#direction.value);
    this.#rows.clear();
    this.#list.replaceChildren();
    this.render();
  }

  #toggle() {
    this.#log.paused = !this.#log.paused;
    this.#log.missed = 0;
    this.#pause.setAttribute("aria-pressed", String(this.#log.paused));
    setText(this.#pause, this.#log.paused ? "Resume" : "Pause");
    this.render();
  }

  #clear() {
    this.#log.clear();
    this.render();
  }

  async #copyAll(button) {
    const lines = this.#log
      .shown(this.#matches)
      .map(({ direction, at, event }) => JSON.stringify({ direction, at_ms: Math.round(at), ...event }));
    await copied(button, lines.join("\n"));
  }
}

function makeRow(entry) {
  const count = el("span", { class: "count" });
  const words = el("span", { class: "gist" });
  const body = el("div", { class: "body" });
  const details = el(
    "details",
    { ontoggle: () => details.open && fill(body, entry) },
    el(
      "summary",
      {},
      el("span", { class: "at" }, (entry.at / 1000).toFixed(2)),
      el("span", { class: "arrow", title: entry.direction, "aria-label": entry.direction }, entry.direction === "sent" ? "↑" : "↓"),
      el("span", { class: "type", title: entry.event.type }, short(entry.event.type)),
      count,
      words,
    ),
    body,
  );
  const recount = () => {
    setText(count, entry.count > 1 ? `×${entry.count}` : "");
    setText(words, gist(entry));
  };
  recount();
  return { element: el("li", { class: entry.error ? "event error" : `event ${entry.direction}` }, details), recount };
}

/** The longest names without what they all begin with. */
function short(type) {
  return type.length > 36 ? type.replace("conversation.item.", "…") : type;
}

function fill(body, entry) {
  const text = JSON.stringify(entry.event, null, 2);
  const button = el("button", { type: "button", onclick: () => copied(button, JSON.stringify(entry.event)) }, "Copy JSON");
  body.replaceChildren(button, el("pre", { tabindex: "0" }, text));
}

async function copied(button, text) {
  const label = button.textContent;
  const done = await copy(text);
  announce(done ? "Copied." : "The browser did not allow copying.");
  button.textContent = done ? "Copied" : "Not allowed";
  setTimeout(() => (button.textContent = label), 1200);
}
