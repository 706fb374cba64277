// One call: a transport, the conversation it carries, and who gives way to whom.

import { sessionReport } from "../api.js";
import { Emitter } from "../emitter.js";
import { Conversation } from "./conversation.js";
import { EventLog } from "./event-log.js";
import { Timings } from "./timings.js";

/** Emits: event (a server event), logged (an entry of the log), state, turns (the timings changed), ended ({ code, reason }, the last error). */
export class Call extends Emitter {
  conversation = new Conversation();
  timings = new Timings();
  log;
  session = null;
  startedAt = performance.now();
  #transport = null;
  #responses = new Set(); // those being made
  #talking = false; // the user speaks, as the server hears it
  #muted = false;
  #held = false; // the button of push to talk
  #lastError = null;
  #written = 0;

  /** `log` outlives the call, so that one can still read it afterwards. */
  constructor(log = new EventLog()) {
    super();
    this.log = log;
  }

  /** The handlers that a transport calls. */
  get handlers() {
    return {
      onevent: (event) => this.#take(event),
      onsent: (event) => this.#note("sent", event),
      onclose: (close) => this.emit("ended", close, this.#lastError),
    };
  }

  /** The transport is connected: configure the session. */
  begin(transport, settings, hasMicrophone) {
    this.#transport = transport;
    this.hasMicrophone = hasMicrophone;
    this.update(settings);
  }

  get transport() {
    return this.#transport;
  }

  /** Push to talk: the server does not listen for turns by itself. */
  get manual() {
    return this.settings?.audio.input.turn_detection === null;
  }

  /** What goes on: connecting, listening, hearing (the user speaks), thinking, speaking. */
  get state() {
    if (!this.session) return "connecting";
    if (this.#talking || this.#held) return "hearing";
    if (this.#transport?.playing) return "speaking";
    if (this.#responses.size) return "thinking";
    return "listening";
  }

  get muted() {
    return this.#muted;
  }

  get held() {
    return this.#held;
  }

  /** Change the session. */
  update(settings) {
    this.settings = settings;
    this.#transport.send({ type: "session.update", session: settings });
    this.#setMicrophone();
    this.emit("state");
  }

  mute(muted) {
    this.#muted = muted;
    this.#setMicrophone();
    this.emit("state");
  }

  /** Write to the assistant; what it is saying gives way. */
  write(text) {
    this.#giveWay(true);
    const item = {
      id: `item_console_${Date.now().toString(36)}_${++this.#written}`,
      type: "message",
      role: "user",
      content: [{ type: "input_text", text }],
    };
    this.#transport.send({ type: "conversation.item.create", item });
    this.#transport.send({ type: "response.create" });
  }

  /** Stop the assistant, as the button does. */
  interrupt() {
    this.#giveWay(true);
    this.emit("state");
  }

  /** The button of push to talk goes down. */
  press() {
    if (this.#held || !this.hasMicrophone) return;
    this.#held = true;
    this.#giveWay(true);
    this.#transport.send({ type: "input_audio_buffer.clear" });
    this.#setMicrophone();
    this.emit("state");
  }

  /** And up again. */
  async release() {
    if (!this.#held) return;
    await this.#transport.flushMicrophone();
    this.#held = false;
    this.#setMicrophone();
    this.#transport.send({ type: "input_audio_buffer.commit" });
    this.#transport.send({ type: "response.create" });
    this.emit("state");
  }

  async end() {
    await this.#transport?.close();
  }

  /** Ask the server how the turns went. */
  async learnTimings() {
    if (!this.session) return;
    this.timings.learn(await sessionReport(this.session.id));
    this.emit("turns");
  }

  #setMicrophone() {
    if (!this.hasMicrophone) this.#transport.setMicrophone("off");
    else if (this.manual) this.#transport.setMicrophone(this.#held ? "open" : "off");
    else this.#transport.setMicrophone(this.#muted ? "silent" : "open");
  }

  /** Stop what is heard. `cancel`: it is our doing, so the server does not know yet that the answer is not wanted. */
  #giveWay(cancel) {
    if (cancel && this.#responses.size) this.#transport.send({ type: "response.cancel" });
    for (const { itemId, contentIndex, heardMs } of this.#transport.stopPlayback()) {
      this.#transport.send({ type: "conversation.item.truncate", item_id: itemId, content_index: contentIndex, audio_end_ms: heardMs });
    }
  }

  #take(event) {
    const at = performance.now() - this.startedAt;
    this.#note("received", event, at);
    this.#follow(event);
    this.conversation.apply(event, at);
    this.timings.apply(event, at, this.session?.audio?.input?.turn_detection);
    this.emit("event", event);
    if (STATE_EVENTS.has(event.type)) this.emit("state");
    if (TURN_EVENTS.has(event.type)) this.emit("turns");
  }

  #follow(event) {
    switch (event.type) {
      case "session.created":
      case "session.updated":
        this.session = event.session;
        break;
      case "input_audio_buffer.speech_started":
        this.#talking = true;
        if (!this.#transport.ownsPlayback) this.#giveWay(false);
        break;
      case "input_audio_buffer.speech_stopped":
      case "input_audio_buffer.committed":
      case "input_audio_buffer.cleared":
        this.#talking = false;
        break;
      case "conversation.item.truncated":
        // Only the server knows which words were heard.
        this.#transport.send({ type: "conversation.item.retrieve", item_id: event.item_id });
        break;
      case "response.created":
        this.#responses.add(event.response.id);
        break;
      case "response.done":
        this.#responses.delete(event.response.id);
        this.learnTimings();
        break;
      case "error":
        this.#lastError = event.error;
        break;
    }
  }

  #note(direction, event, at = performance.now() - this.startedAt) {
    const entry = this.log.add(direction, event, at);
    this.emit("logged", entry);
  }
}

const STATE_EVENTS = new Set([
  "session.created",
  "session.updated",
  "input_audio_buffer.speech_started",
  "input_audio_buffer.speech_stopped",
  "input_audio_buffer.committed",
  "response.created",
  "response.output_audio.delta",
  "output_audio_buffer.started",
  "output_audio_buffer.stopped",
  "output_audio_buffer.cleared",
  "response.done",
]);

const TURN_EVENTS = new Set([
  "input_audio_buffer.committed",
  "conversation.item.input_audio_transcription.completed",
  "response.output_audio_transcript.delta",
  "response.output_text.delta",
  "output_audio_buffer.started",
  "response.done",
]);
