// The form that says what to make.

import { el, setText } from "../dom.js";
import { apiKey, preferences } from "../preferences.js";

const KINDS = [
  ["picture", "Picture"],
  ["clip", "Clip"],
];
const MOST_SEED = 2 ** 31 - 1;

export class Composer {
  element;
  #fields;
  #kinds;
  #models = [];
  #make = el("button", { type: "submit", class: "primary" }, "Make");
  #remix = el("p", { class: "remix", hidden: true });
  #remixed = null;
  #keyNote = el("p", { class: "hint", id: "gallery-key-note" });
  #advanced;
  #submit;
  #onkey;

  /** `submit(spec)` takes what was asked for; `onkey()` is called when there is another API key. */
  constructor({ submit, onkey }) {
    this.#submit = submit;
    this.#onkey = onkey;
    this.#fields = {
      prompt: el("textarea", { id: "prompt", rows: "3", required: true, maxlength: "4000", placeholder: "What should be drawn?" }),
      size: el("select", { id: "size" }),
      seconds: el("select", { id: "seconds" }),
      number: el("select", { id: "number" }, ...[1, 2, 3, 4, 6, 8].map((count) => el("option", { value: String(count) }, String(count)))),
      model: el("select", { id: "media-model" }),
      seed: el("input", { id: "seed", type: "number", min: "0", max: String(MOST_SEED), step: "1", placeholder: "Random" }),
      steps: el("input", { id: "steps", type: "number", min: "1", max: "1000", step: "1", placeholder: "Usual" }),
      key: el("input", {
        id: "gallery-key",
        type: "password",
        autocomplete: "off",
        spellcheck: "false",
        "aria-describedby": "gallery-key-note",
      }),
    };
    this.#kinds = KINDS.map(([value, title]) => {
      const checked = value === preferences.get("gallery.kind", "picture");
      const input = el("input", { type: "radio", name: "kind", value, id: `kind-${value}`, checked });
      return { input, label: el("label", { htmlFor: input.id }, title) };
    });
    this.element = this.#build();
    this.element.addEventListener("submit", (event) => this.#send(event));
    this.element.addEventListener("change", (event) => this.#changed(event.target));
    this.#fields.prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) this.#send(event);
    });
    this.#adapt();
  }

  /** The models that can make something, as `mediaModels` gives them; none: the server has none. */
  offer(models) {
    this.#models = models;
    const { model } = this.#fields;
    const wanted = model.value || preferences.get("gallery.model", "");
    model.replaceChildren(...models.map(({ id }) => el("option", { value: id }, id)));
    if (models.some(({ id }) => id === wanted)) model.value = wanted;
    this.#make.disabled = models.length === 0;
    this.#adapt();
  }

  /** Whether the server wants a key that it was not given. */
  needKey(needed) {
    const { key } = this.#fields;
    key.toggleAttribute("aria-invalid", needed);
    this.#keyNote.classList.toggle("bad", needed);
    const given = apiKey.get() !== "";
    if (needed) {
      this.#advanced.open = true;
      setText(this.#keyNote, given ? "The server does not accept this key." : "This server wants a key.");
    } else setText(this.#keyNote, given ? "Kept in this tab until you close it." : "This server asks for none.");
  }

  /** The key may have been changed in another room. */
  enter() {
    this.#fields.key.value = apiKey.get();
  }

  /** Put this into the form, for its reader to change: a prompt, and what else of a job is known. */
  fill({ prompt, kind, size, seconds, seed, steps, model }) {
    const fields = this.#fields;
    this.#remixing(null);
    fields.prompt.value = prompt;
    for (const { input } of this.#kinds) if (kind) input.checked = input.value === kind;
    if (model && this.#models.some(({ id }) => id === model)) fields.model.value = model;
    this.#adapt();
    choose(fields.size, size);
    choose(fields.seconds, seconds);
    fields.number.value = "1";
    fields.seed.value = seed ?? "";
    fields.steps.value = steps ?? "";
    if (seed !== undefined && seed !== null) this.#advanced.open = true;
    this.focus();
  }

  /** Ask for another prompt for a clip that there is. */
  remix(job) {
    this.fill({ ...job, seed: null });
    this.#remixing(job);
  }

  focus() {
    const { prompt } = this.#fields;
    prompt.focus();
    prompt.select();
    this.element.scrollIntoView({ block: "nearest" });
  }

  #build() {
    const f = this.#fields;
    this.#advanced = el(
      "details",
      { class: "advanced" },
      el("summary", {}, "More settings"),
      field("Model", f.model),
      el("div", { class: "pair" }, field("Seed", f.seed), field("Steps", f.steps)),
      field("API key", f.key, this.#keyNote),
    );
    return el(
      "form",
      { class: "composer", "aria-label": "Make a picture or a clip", autocomplete: "off" },
      this.#remix,
      field("Prompt", f.prompt),
      el(
        "fieldset",
        { class: "kinds" },
        el("legend", { class: "unseen" }, "What to make"),
        ...this.#kinds.flatMap(({ input, label }) => [input, label]),
      ),
      el("div", { class: "pair" }, field("Size", f.size), field("Seconds", f.seconds), field("How many", f.number)),
      this.#advanced,
      this.#make,
    );
  }

  get #kind() {
    return this.#kinds.find(({ input }) => input.checked)?.input.value ?? "picture";
  }

  /** What the chosen model can do settles what may be chosen. */
  #adapt() {
    const { size, seconds, number, model } = this.#fields;
    const chosen = this.#models.find(({ id }) => id === model.value);
    for (const { input } of this.#kinds) input.disabled = chosen ? !chosen[`${input.value}s`] : false;
    const checked = this.#kinds.find(({ input }) => input.checked);
    if (checked?.input.disabled) this.#kinds.find(({ input }) => !input.disabled).input.checked = true;
    const clip = this.#kind === "clip";
    options(size, chosen?.sizes[this.#kind] ?? [], (value) => value.replace("x", " × "));
    options(seconds, chosen?.seconds ?? [], (value) => value, chosen?.usualSeconds);
    seconds.closest(".field").hidden = !clip || this.#remixed !== null;
    size.closest(".field").hidden = this.#remixed !== null;
    number.closest(".field").hidden = this.#remixed !== null;
    const several = number.value === "1" ? "" : "s";
    setText(this.#make, this.#remixed ? "Make the remix" : clip ? `Make the clip${several}` : `Make the picture${several}`);
  }

  #remixing(job) {
    this.#remixed = job;
    this.#remix.hidden = job === null;
    const stop = el("button", { type: "button", class: "quiet", onclick: () => this.#remixing(null) }, "Make a new one instead");
    this.#remix.replaceChildren(...(job ? [`A remix of “${job.prompt}”.`, stop] : []));
    this.#adapt();
  }

  #changed({ id, name }) {
    const { key, model } = this.#fields;
    if (id === key.id) {
      apiKey.set(key.value.trim());
      this.#onkey();
    } else if (id === model.id) preferences.set("gallery.model", model.value);
    else if (name === "kind") preferences.set("gallery.kind", this.#kind);
    this.#adapt();
  }

  #send(event) {
    event.preventDefault();
    if (!this.element.reportValidity() || this.#make.disabled) return;
    const { prompt, size, seconds, number, seed, steps, model } = this.#fields;
    this.#submit({
      kind: this.#kind,
      prompt: prompt.value.trim(),
      size: size.value,
      seconds: this.#kind === "clip" ? seconds.value : "",
      number: this.#remixed ? 1 : Number(number.value),
      seed: seed.value === "" ? null : Number(seed.value),
      steps: steps.value === "" ? null : Number(steps.value),
      model: model.value,
      from: this.#remixed?.id ?? "",
    });
    this.#remixing(null);
    prompt.select();
  }
}

function field(title, control, ...more) {
  return el("div", { class: "field" }, el("label", { htmlFor: control.id }, title), control, ...more);
}

/** Offer these values, and keep the one that is chosen if it is among them; else `usual`, else the first. */
function options(select, values, title, usual = "") {
  const before = select.value || usual;
  const same = values.length === select.options.length && values.every((value, at) => select.options[at].value === value);
  if (same) return;
  select.replaceChildren(...values.map((value) => el("option", { value }, title(value))));
  choose(select, usual);
  choose(select, before);
}

function choose(select, value) {
  if ([...select.options].some((option) => option.value === value)) select.value = value;
}
