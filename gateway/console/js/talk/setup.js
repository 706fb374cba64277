// The form that says how to call: connection, key, model, voice, turn taking, instructions.

import { models } from "../api.js";
import { el, setText } from "../dom.js";
import { apiKey, preferences } from "../preferences.js";

const TRANSPORTS = [
  ["auto", "Automatic (WebRTC, else WebSocket)"],
  ["webrtc", "WebRTC"],
  ["websocket", "WebSocket"],
];
const DETECTIONS = [
  ["server_vad", "A pause ends my turn"],
  ["semantic_vad", "A model judges when I have finished"],
  ["manual", "Push to talk"],
];
const EAGERNESS = [
  ["auto", "Automatic"],
  ["low", "Low: let me think"],
  ["medium", "Medium"],
  ["high", "High: answer quickly"],
];
const ANSWERS = [
  ["audio", "Spoken"],
  ["text", "Written"],
];
const ABOUT_HEADPHONES = "Then no echo has to be cancelled, and you are heard better when you talk over Antiphon.";
const NEXT_CALL = ["transport", "key", "model", "microphone", "headphones"]; // what a running call cannot change

export class Setup {
  element;
  #fields;
  #keyNote = el("p", { class: "hint" });
  #voices = el("datalist", { id: "voices" });
  #models = [];
  #onchange;

  /** `onchange()` is called when something changed that a running call can follow; `onkey()` when there is another key. */
  constructor({ onchange, onserver }) {
    this.#onchange = onchange;
    this.onserver = onserver;
    const asked = new URLSearchParams(location.search);
    const remembered = (name, fallback) => asked.get(name) ?? preferences.get(name, fallback);
    const flag = (name, fallback) => (asked.has(name) ? asked.get(name) !== "false" : preferences.get(name, fallback));
    this.#fields = {
      transport: choose("transport", TRANSPORTS, remembered("transport", "auto")),
      key: el("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", value: apiKey.get() }),
      model: el("select", { id: "model" }),
      voice: el("input", {
        id: "voice",
        type: "text",
        list: "voices",
        placeholder: "The server's default",
        autocomplete: "off",
        spellcheck: "false",
        value: remembered("voice", ""),
      }),
      detection: choose("detection", DETECTIONS, remembered("detection", "server_vad")),
      pause: el("input", { id: "pause", type: "number", min: "100", max: "5000", step: "50", value: String(remembered("pause", 500)) }),
      eagerness: choose("eagerness", EAGERNESS, remembered("eagerness", "auto")),
      answers: choose("answers", ANSWERS, remembered("answers", "audio")),
      microphone: el("input", { id: "microphone", type: "checkbox", checked: flag("microphone", true) }),
      headphones: el("input", { id: "headphones", type: "checkbox", checked: flag("headphones", false) }),
      instructions: el("textarea", {
        id: "instructions",
        rows: "4",
        placeholder: "The server's default",
        value: remembered("instructions", ""),
      }),
    };
    this.wanted = remembered("model", "");
    this.element = this.#build();
    this.element.addEventListener("change", (event) => this.#changed(event.target.id));
    this.element.addEventListener("submit", (event) => event.preventDefault());
    this.#adapt();
  }

  /** What the form says now. */
  get values() {
    const { transport, key, model, microphone, headphones } = this.#fields;
    return {
      choice: transport.value,
      key: key.value.trim(),
      model: model.value,
      useMicrophone: microphone.checked,
      headphones: headphones.checked,
      session: this.#session(),
    };
  }

  /** Fields that a running call cannot change are locked while it runs. */
  lock(locked) {
    for (const name of NEXT_CALL) this.#fields[name].disabled = locked;
    this.element.classList.toggle("locked", locked);
  }

  /** Ask the server which models it has; returns its `ApiError` if it does not say. */
  async load() {
    try {
      this.#models = (await models()).filter(({ media }) => !media); // those that draw have a room of their own
    } catch (error) {
      this.#needsKey(error.status === 401);
      this.onserver(error);
      return error;
    }
    this.#needsKey(false);
    this.#offerModels();
    this.onserver(null);
    return null;
  }

  focusKey() {
    this.#fields.key.focus();
  }

  #session() {
    const { voice, detection, pause, eagerness, answers, instructions } = this.#fields;
    const detections = {
      manual: null,
      server_vad: { type: "server_vad", silence_duration_ms: Math.max(0, Math.min(10000, Math.round(Number(pause.value)) || 500)) },
      semantic_vad: { type: "semantic_vad", eagerness: eagerness.value },
    };
    const session = {
      type: "realtime",
      output_modalities: [answers.value],
      audio: { input: { turn_detection: detections[detection.value], transcription: { model: "default" } } },
    };
    if (voice.value.trim()) session.audio.output = { voice: voice.value.trim() };
    if (instructions.value.trim()) session.instructions = instructions.value.trim();
    return session;
  }

  #build() {
    const f = this.#fields;
    return el(
      "form",
      { class: "setup", "aria-label": "Setup", autocomplete: "off" },
      field("Connection", f.transport),
      field("API key", f.key, this.#keyNote),
      field("Model", f.model),
      field("Voice", f.voice, this.#voices),
      field("Turn taking", f.detection),
      field("Pause that ends a turn, ms", f.pause),
      field("Eagerness", f.eagerness),
      field("Answers", f.answers),
      el("label", { class: "check", htmlFor: "microphone" }, f.microphone, "Use the microphone"),
      el("label", { class: "check", htmlFor: "headphones", title: ABOUT_HEADPHONES }, f.headphones, "I wear headphones"),
      field("Instructions", f.instructions),
      el("p", { class: "hint when-locked" }, "Connection, key, model and microphone apply to the next call; everything else to this one."),
    );
  }

  #changed(name) {
    const { key } = this.#fields;
    if (name === "key") {
      apiKey.set(key.value.trim());
      this.load();
      return;
    }
    const element = this.#fields[name];
    if (element) preferences.set(name, element.type === "checkbox" ? element.checked : element.value);
    this.#adapt();
    if (!NEXT_CALL.includes(name)) this.#onchange();
  }

  #adapt() {
    const { detection, pause, eagerness, model } = this.#fields;
    pause.closest(".field").hidden = detection.value !== "server_vad";
    eagerness.closest(".field").hidden = detection.value !== "semantic_vad";
    const voices = this.#models.find(({ id }) => id === model.value)?.voices ?? [];
    this.#voices.replaceChildren(...voices.map((voice) => el("option", { value: voice })));
  }

  #offerModels() {
    const { model } = this.#fields;
    const wanted = model.value || this.wanted;
    model.replaceChildren(
      ...this.#models.map(({ id, pipeline }) => el("option", { value: id }, id === pipeline || !pipeline ? id : `${id} (${pipeline})`)),
    );
    if (this.#models.some(({ id }) => id === wanted)) model.value = wanted;
    this.#adapt();
  }

  #needsKey(needed) {
    const { key } = this.#fields;
    key.toggleAttribute("aria-invalid", needed);
    key.setAttribute("aria-describedby", "key-note");
    this.#keyNote.id = "key-note";
    this.#keyNote.classList.toggle("bad", needed);
    const given = key.value.trim() !== "";
    if (needed) setText(this.#keyNote, given ? "The server does not accept this key." : "This server wants a key.");
    else setText(this.#keyNote, given ? "Kept in this tab until you close it." : "This server asks for none.");
  }
}

function choose(id, options, value) {
  const select = el("select", { id }, ...options.map(([key, title]) => el("option", { value: key }, title)));
  if (options.some(([key]) => key === value)) select.value = value;
  return select;
}

function field(title, control, ...more) {
  return el("div", { class: "field" }, el("label", { htmlFor: control.id }, title), control, ...more);
}
