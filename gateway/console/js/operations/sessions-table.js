// The sessions of the server: their state, age and epoch, how their turns went, and an end to one of them.

import { sessionReport } from "../api.js";
import { el, setText } from "../dom.js";
import { sureButton } from "../sure-button.js";
import { TurnsView } from "../talk/turns-view.js";

const COLUMNS = ["Session", "State", "Age", "Model", "Epoch", "Outbox", "Behind", ""];

export class SessionsTable {
  element;
  #body = el("tbody");
  #rows = new Map();
  #empty = el("p", { class: "blank", hidden: true }, "Nobody is talking right now.");
  #end;

  /** `end(sessionId)` ends a session. */
  constructor(end) {
    this.#end = end;
    const head = COLUMNS.map((title) =>
      el("th", { scope: "col", title: ABOUT[title] ?? null }, title || el("span", { class: "unseen" }, "Actions")),
    );
    this.element = el(
      "div",
      { class: "wide" },
      el(
        "table",
        { class: "sessions" },
        el("caption", { class: "unseen" }, "Sessions"),
        el("thead", {}, el("tr", {}, ...head)),
        this.#body,
      ),
      this.#empty,
    );
  }

  show(sessions, now = Date.now() / 1000) {
    const present = new Set(sessions.map(({ id }) => id));
    for (const [id, row] of this.#rows) {
      if (present.has(id)) continue;
      row.remove();
      this.#rows.delete(id);
    }
    for (const session of sessions) {
      if (!this.#rows.has(session.id)) this.#rows.set(session.id, new Row(session.id, this.#body, this.#end));
      this.#rows.get(session.id).show(session, now);
    }
    this.#empty.hidden = sessions.length > 0;
    this.element.querySelector("table").hidden = !sessions.length;
  }
}

const ABOUT = {
  Epoch: "The fence number: it rises with every interruption",
  Outbox: "Audio made but not on the wire yet",
  Behind: "Input audio that the voice detector has not looked at yet",
};

class Row {
  #cells = Object.fromEntries(
    ["state", "age", "model", "epoch", "outbox", "behind"].map((name) => [name, el("td", name === "model" ? {} : { class: "number" })]),
  );
  #state = el("span", { class: "pill" });
  #turns = null;
  #details = null;
  #row;
  #id;
  #toggle;

  constructor(id, body, end) {
    this.#id = id;
    this.#cells.state.append(this.#state);
    this.#toggle = el(
      "button",
      { type: "button", class: "id", "aria-expanded": "false", title: "Show the last turns", onclick: () => this.#open() },
      id,
    );
    this.#row = el(
      "tr",
      {},
      el("th", { scope: "row" }, this.#toggle),
      ...Object.values(this.#cells),
      el(
        "td",
        { class: "act" },
        sureButton("End", "Really end?", () => end(id)),
      ),
    );
    body.append(this.#row);
  }

  show(session, now) {
    const { state, age, model, epoch, outbox, behind } = this.#cells;
    this.#state.dataset.state = session.state;
    setText(this.#state, session.state);
    setText(age, duration(now - session.started_at));
    const served = session.pipeline ?? session.policy; // a robot has a policy
    setText(model, session.model && session.model !== served ? `${session.model} → ${served}` : served);
    setText(epoch, String(session.epoch));
    setText(outbox, `${session.outbox?.audio_ms ?? 0} ms`);
    setText(behind, `${session.vad_backlog_ms ?? 0} ms`);
    state.title = session.busy ? "Busy: it is never evicted" : "Idle: it may have to make room";
    if (this.#details) this.#learn();
  }

  remove() {
    this.#row.remove();
    this.#details?.remove();
  }

  #open() {
    const open = this.#details === null;
    this.#toggle.setAttribute("aria-expanded", String(open));
    if (!open) {
      this.#details.remove();
      this.#details = this.#turns = null;
      return;
    }
    this.#turns = new TurnsView("No turn has been timed in this session.");
    this.#details = el("tr", { class: "more" }, el("td", { colspan: String(COLUMNS.length) }, this.#turns.element));
    this.#row.after(this.#details);
    this.#learn();
  }

  async #learn() {
    const report = await sessionReport(this.#id);
    this.#turns?.show((report?.turns ?? []).map((turn) => ({ status: turn.status, marks: {}, report: turn })));
  }
}

/** 42 s, 3:05 min, 1:20 h. */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const two = (number) => String(number).padStart(2, "0");
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}:${two(whole % 60)} min`;
  return `${Math.floor(whole / 3600)}:${two(Math.floor((whole % 3600) / 60))} h`;
}
