// The talk room: talk to Antiphon, and look into the call.

import { announce, copy, el, setText } from "../dom.js";
import { openMicrophone } from "../audio/microphone.js";
import { asProblem, closeProblem, refusalProblem } from "../problems.js";
import { connect } from "../transports/connect.js";
import { Call } from "./call.js";
import { ConversationView } from "./conversation-view.js";
import { Deck } from "./deck.js";
import { EventLog } from "./event-log.js";
import { InspectorView } from "./inspector-view.js";
import { Notices } from "./notices.js";
import { ScoreView } from "./score-view.js";
import { Setup } from "./setup.js";
import { TurnsView } from "./turns-view.js";

const PANELS = [
  ["conversation", "Conversation"],
  ["turns", "Turns"],
  ["events", "Events"],
  ["setup", "Setup"],
];

/** A room for `rooms.js`. */
export function build(context) {
  return new TalkRoom(context);
}

class TalkRoom {
  element;
  #serverState;
  #call = null;
  #attempt = null; // the AbortController of a call that is being set up
  #stream = null;
  #log = new EventLog();
  #score = new ScoreView();
  #notices = new Notices();
  #facts = el("p", { class: "facts" });
  #turns = new TurnsView("Speak, and each turn's latency appears here.");
  #inspector = new InspectorView(this.#log);
  #transcript = new ConversationView(welcome());
  #copyText = el("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.#copy() }, "Copy transcript");
  #setup;
  #deck;
  #ticker = null;

  constructor({ serverState }) {
    this.#serverState = serverState;
    this.#setup = new Setup({ onchange: () => this.#reconfigure(), onserver: (error) => this.#serverSeen(error) });
    this.#deck = new Deck({ toggle: () => (this.#call || this.#attempt ? this.#end() : this.#start()) }, this.#score.element);
    this.element = el(
      "div",
      { class: "room talk", dataset: { panel: "conversation" } },
      el("h1", { class: "unseen" }, "Talk"),
      this.#tabs(),
      el("section", { class: "panel setup-panel", id: "panel-setup" }, el("h2", {}, "Setup"), this.#setup.element),
      el(
        "div",
        { class: "centre" },
        this.#notices.element,
        el(
          "section",
          { class: "panel conversation-panel", id: "panel-conversation" },
          el("header", { class: "bar-head" }, this.#facts, this.#copyText),
          this.#transcript.element,
        ),
        this.#deck.element,
      ),
      el("section", { class: "panel turns-panel", id: "panel-turns" }, el("h2", {}, "Turns"), this.#turns.element),
      el("section", { class: "panel events-panel", id: "panel-events" }, el("h2", {}, "Events"), this.#inspector.element),
    );
    this.#greet();
    this.#describe();
  }

  async #greet() {
    const error = await this.#setup.load();
    if (!error || error.status === 401) return; // the key's field says it
    const { title, advice } = refusalProblem(error);
    this.#notices.problem(title, advice, "server");
  }

  // ---- the call ----

  async #start() {
    const attempt = (this.#attempt = new AbortController());
    this.#notices.clear();
    this.#show("conversation");
    const values = this.#setup.values;
    const call = new Call(this.#log);
    this.#setup.lock(true);
    this.#deck.follow(null, true);
    let transport = null;
    try {
      this.#stream = values.useMicrophone ? await openMicrophone(values) : null;
      attempt.signal.throwIfAborted();
      this.#wire(call);
      transport = await connect(values.choice, { ...values, stream: this.#stream, ...call.handlers, signal: attempt.signal }, (note) =>
        this.#notices.note(note),
      );
      attempt.signal.throwIfAborted();
    } catch (error) {
      await transport?.close();
      if (this.#attempt !== attempt) return; // cancelled, and all is tidy already
      this.#attempt = null;
      this.#rest();
      this.#fail(asProblem(error));
      return;
    }
    this.#attempt = null;
    this.#call = call;
    call.begin(transport, values.session, this.#stream !== null);
    this.#follow(call);
  }

  #wire(call) {
    call.on("event", (event) => this.#happened(call, event));
    call.on("logged", () => this.#inspector.render());
    call.on("state", () => this.#call === call && this.#deck.update());
    call.on("turns", () => this.#showTurns(call));
    call.on("ended", (close, said) => this.#ended(call, close, said));
    this.#transcript.follow(call);
    this.#turns.show([]);
  }

  #follow(call) {
    this.#deck.follow(call);
    this.#score.start(() => call.transport.levels());
    this.#ticker = setInterval(() => {
      this.#transcript.progress();
      this.#deck.update();
    }, 100);
    const track = this.#stream?.getAudioTracks()[0];
    if (track)
      track.onended = () => this.#notices.problem("The microphone has gone.", "Plug it in again and start a new call, or go on by text.");
    this.#serverState("good", "Server ready");
    announce(this.#stream ? "Connected. Speak." : "Connected. Write.");
    this.#describe();
  }

  #happened(call, event) {
    this.#transcript.render();
    this.#copyText.hidden = !call.conversation.lines.length;
    if (event.type.startsWith("session.")) this.#describe();
    if (event.type === "error") this.#refused(event.error);
    if (event.type === "session.expiring")
      this.#notices.note(event.message, "Say or write something to keep it, or start a new call later.");
    if (event.type === "session.draining")
      this.#notices.note(event.message, "Finish your sentence; you can connect again when the server is back.");
  }

  #refused(error) {
    if (HARMLESS.has(error.code)) return;
    this.#notices.problem("The server refused something.", error.message);
  }

  #showTurns(call) {
    this.#turns.show(call.timings.turns);
    this.#transcript.render();
  }

  async #end() {
    const call = this.#call;
    this.#attempt?.abort();
    this.#attempt = null;
    this.#call = null;
    this.#rest();
    announce("The call has ended.");
    await call?.end();
  }

  #ended(call, close, said) {
    if (this.#call !== call) return;
    this.#call = null;
    this.#rest();
    call.end();
    const problem = closeProblem(close, said);
    if (problem) this.#fail(problem);
    else announce("The call has ended.");
  }

  #rest() {
    clearInterval(this.#ticker);
    this.#score.stop();
    for (const track of this.#stream?.getTracks() ?? []) {
      track.onended = null;
      track.stop();
    }
    this.#stream = null;
    this.#setup.lock(false);
    this.#deck.follow(null);
    this.#transcript.render();
    this.#describe();
  }

  #reconfigure() {
    this.#call?.update(this.#setup.values.session);
  }

  // ---- what is told ----

  #fail(problem) {
    this.#notices.problem(problem.title, problem.advice, problem.code);
    if (["lost", "unreachable", "draining"].includes(problem.code)) this.#setup.load();
    if (problem.code === "key") {
      this.#show("setup");
      this.#setup.focusKey();
    }
  }

  #serverSeen(error) {
    if (!error) this.#serverState("good", "Server ready");
    else if (error.status === 401) this.#serverState("busy", "Key needed");
    else this.#serverState("bad", error.status === 503 ? "Server not ready" : "No server");
  }

  #describe() {
    const session = this.#call?.session;
    if (!session) {
      setText(this.#facts, "");
      return;
    }
    const voice = session.audio?.output?.voice;
    setText(
      this.#facts,
      [this.#call.transport.kind, session.model, typeof voice === "string" ? voice : voice?.id, session.id].filter(Boolean).join(" · "),
    );
  }

  async #copy() {
    announce((await copy(this.#transcript.text())) ? "Copied." : "The browser did not allow copying.");
  }

  // ---- panels on a narrow screen ----

  #tabs() {
    return el(
      "div",
      { class: "tabs", role: "group", "aria-label": "Panels" },
      ...PANELS.map(([name, title]) =>
        el(
          "button",
          {
            type: "button",
            dataset: { panel: name },
            "aria-controls": `panel-${name}`,
            "aria-pressed": String(name === "conversation"),
            onclick: () => this.#show(name),
          },
          title,
        ),
      ),
    );
  }

  #show(name) {
    this.element.dataset.panel = name;
    for (const button of this.element.querySelectorAll(".tabs button"))
      button.setAttribute("aria-pressed", String(button.dataset.panel === name));
    if (name === "events") this.#inspector.render();
  }
}

/**
 * Errors that need no notice: those of two sides acting at once, those that say why the connection is about to close, and that of
 * an item which is too large for the data channel (the words are then counted by their times).
 */
const HARMLESS = new Set([
  "event_too_large",
  "session_ended",
  "session_evicted",
  "session_expired",
  "server_draining",
  "response_cancel_not_active",
  "conversation_already_has_active_response",
  "item_retrieve_invalid_item_id",
  "item_truncate_invalid_item_id",
]);

function welcome() {
  return el(
    "div",
    { class: "welcome" },
    el("p", { class: "lead" }, "Talk to Antiphon, and talk over it."),
    el(
      "p",
      {},
      "Press Start talking and speak. Interrupt whenever you like: it stops at once and remembers only what you heard. The words you did not hear are struck out here.",
    ),
  );
}
