// One job: how far it is, what it looks like so far, what became of it, and what can be done about it.

import { el, setText } from "../dom.js";
import { sureButton } from "../sure-button.js";
import { fetchFile, save, Shown } from "./files.js";
import { Player } from "./player.js";
import { factsOf, fileName, mediaProblem, stateOf } from "./words.js";

const FIRST_PREVIEW = 12; // per cent: before that there is nothing to be seen
const LONG_PROMPT = 60; // characters of it that stand for a job where it is only named

export class Card {
  element;
  job = null;
  #actions;
  #frame = el("div", { class: "frame" });
  #state = el("p", { class: "pill" });
  #progress = el("progress", { max: "100", hidden: true });
  #prompt = el("p", { class: "prompt" });
  #revised = el("p", { class: "revised", hidden: true });
  #warnings = el("ul", { class: "warnings", hidden: true });
  #error = el("p", { class: "error", hidden: true });
  #facts = el("p", { class: "print" });
  #buttons;
  #preview = { shown: new Shown(), image: el("img", { class: "preview", alt: "" }), progress: -1, asking: false };
  #pictures = []; // of {shown, image}
  #player = null;
  #near = false;
  #built = ""; // what the frame holds: nothing yet (or a preview), the result, or that it failed
  #freed = false;
  #watched = false; // it was seen being made, so its end is shown at once

  /** `actions`: cancel(job), remove(job), remix(job), again(job). */
  constructor(actions) {
    this.#actions = actions;
    const button = (title, work) => el("button", { type: "button", class: "quiet", onclick: work }, title);
    this.#buttons = {
      cancel: button("Cancel", () => actions.cancel(this.job)),
      download: button("Download", () => this.#download()),
      remix: button("Remix", () => actions.remix(this.job)),
      again: button("Same seed", () => actions.again(this.job)),
      remove: sureButton("Delete", "Really delete?", () => actions.remove(this.job)),
    };
    this.element = el(
      "li",
      { class: "card" },
      this.#frame,
      el("div", { class: "standing" }, this.#state, this.#progress),
      this.#prompt,
      this.#revised,
      this.#warnings,
      this.#error,
      this.#facts,
      el("div", { class: "acts" }, ...Object.values(this.#buttons)),
    );
  }

  /** Show a job as it is now. `ahead`: waiting jobs before it. */
  show(job, ahead) {
    this.job = job;
    this.#watched ||= !job.ended;
    const { element } = this;
    const named = short(job.prompt);
    element.dataset.state = job.status;
    element.dataset.kind = job.kind;
    this.#state.dataset.state = PILLS[job.status] ?? "";
    setText(this.#state, stateOf(job, ahead));
    this.#progress.hidden = job.status !== "in_progress";
    this.#progress.value = job.progress;
    this.#progress.setAttribute("aria-label", `Progress of “${named}”`);
    setText(this.#prompt, job.prompt);
    this.#prompt.title = job.prompt.length > 160 ? job.prompt : "";
    this.#revised.hidden = !job.revised || job.revised === job.prompt;
    setText(this.#revised, `Drawn as: ${job.revised}`);
    this.#warn(job.warnings);
    this.#fault(job.error?.message ?? (job.status === "failed" ? "The server does not say why." : ""));
    setText(this.#facts, factsOf(job));
    const made = job.status === "completed";
    this.#buttons.cancel.hidden = job.ended;
    this.#buttons.download.hidden = !made;
    this.#buttons.remix.hidden = !job.ended;
    this.#buttons.again.hidden = !made || job.seed === null;
    this.#buttons.remove.hidden = !job.ended;
    for (const [name, button] of Object.entries(this.#buttons)) button.setAttribute("aria-label", `${LABELS[name]} “${named}”`);
    shape(this.#frame, job);
    this.#fill();
  }

  /** Whether the card can be seen, or soon: only then its files are fetched. */
  set near(near) {
    this.#near = near;
    if (near) this.#fill();
    else this.#player?.rest();
  }

  /** Ask again for files that could not be had. */
  retry() {
    if (this.#built === "failed") this.#built = "";
    this.#fill();
  }

  free() {
    this.#freed = true;
    this.#near = false;
    this.#preview.shown.free();
    for (const { shown } of this.#pictures) shown.free();
    this.#player?.free();
    this.#player = null;
  }

  // ---- what it looks like ----

  #fill() {
    const { job } = this;
    if (!this.#near || job === null) return;
    const { progress } = this.#preview;
    if (job.status === "completed" && this.#built === "") this.#build();
    else if (job.status === "in_progress" && job.progress > progress && job.progress >= FIRST_PREVIEW) this.#sharpen();
    this.#frame.classList.toggle("stopped", job.status === "failed" || job.status === "cancelled");
  }

  async #sharpen() {
    const preview = this.#preview;
    if (preview.asking) return;
    preview.asking = true;
    const { progress, previewPath } = this.job;
    try {
      const blob = await fetchFile(previewPath);
      if (blob !== null && this.#built === "" && !this.#freed) {
        preview.image.src = preview.shown.put(blob);
        preview.image.alt = `What “${short(this.job.prompt)}” looks like so far`;
        if (!preview.image.isConnected) this.#frame.replaceChildren(preview.image);
        preview.progress = progress;
      }
    } catch {
      // the next look asks again; the list says it when the server is gone
    }
    preview.asking = false;
  }

  async #build() {
    const { job } = this;
    this.#built = "result";
    if (job.kind === "clip") {
      this.#player = new Player({
        path: job.paths[0],
        thumbnail: job.thumbnail,
        label: `“${job.prompt}”`,
        fail: (error) => this.#missing(error),
        ready: () => this.#play(),
      });
      return;
    }
    try {
      this.#pictures = job.paths.map(() => ({ shown: new Shown(), image: el("img", { alt: job.revised || job.prompt }) }));
      const urls = await Promise.all(this.#pictures.map(({ shown }, index) => shown.load(job.paths[index])));
      if (urls.some((url) => url === null)) throw new Error("It is not there any more.");
      this.#pictures.forEach(({ image }, index) => (image.src = urls[index]));
      await Promise.all(this.#pictures.map(({ image }) => image.decode()));
      this.#replace(this.#pictures.map(({ image }) => image));
    } catch (error) {
      this.#missing(error);
    }
  }

  #play() {
    if (this.#player === null) return; // it was freed meanwhile
    this.#replace([this.#player.element]);
    if (this.#watched && !matchMedia("(prefers-reduced-motion: reduce)").matches) this.#player.play();
  }

  /** The result takes the preview's place. */
  #replace(elements) {
    this.#frame.classList.toggle("several", elements.length > 1);
    this.#frame.classList.remove("missing");
    this.#frame.replaceChildren(...elements);
    this.#preview.shown.free();
  }

  #missing(error) {
    if (this.#freed) return;
    this.#built = "failed";
    for (const { shown } of this.#pictures) shown.free();
    this.#player?.free();
    this.#player = null;
    this.#pictures = [];
    const again = el("button", { type: "button", onclick: () => this.retry() }, "Load again");
    this.#frame.classList.add("missing");
    this.#frame.replaceChildren(el("p", { class: "hint bad" }, `It cannot be shown. ${mediaProblem(error).advice}`), again);
  }

  async #download() {
    const { job } = this;
    this.#buttons.download.disabled = true;
    try {
      for (const [index, path] of job.paths.entries()) {
        const blob = this.#pictures[index]?.shown.blob ?? this.#player?.blob ?? (await fetchFile(path));
        if (blob === null) throw new Error("It is not there any more.");
        save(blob, fileName(job, blob, index));
      }
    } catch (error) {
      const { title, advice } = mediaProblem(error);
      this.#fault(`${title} ${advice}`);
    }
    this.#buttons.download.disabled = false;
  }

  // ---- what there is to say ----

  #warn(warnings) {
    if (this.#warnings.childElementCount === warnings.length) return; // they do not change once they are there
    this.#warnings.replaceChildren(...warnings.map((text) => el("li", {}, text)));
    this.#warnings.hidden = !warnings.length;
  }

  #fault(text) {
    setText(this.#error, text);
    this.#error.hidden = !text;
  }
}

const PILLS = { queued: "idle", in_progress: "thinking", completed: "well", failed: "ill", cancelled: "idle" };
const LABELS = { cancel: "Cancel", download: "Download", remix: "Remix", again: "Same seed again:", remove: "Delete" };

/** A prompt's first words. */
export function short(prompt) {
  return prompt.length > LONG_PROMPT ? `${prompt.slice(0, LONG_PROMPT)}…` : prompt;
}

/** Give the frame the proportions of what will stand in it, so that nothing moves when it comes. Several pictures stand in pairs. */
function shape(frame, { size, count }) {
  const [width, height] = size.split("x").map(Number);
  const [columns, rows] = count > 1 ? [2, Math.ceil(count / 2)] : [1, 1];
  frame.style.aspectRatio = width > 0 && height > 0 ? `${width * columns} / ${height * rows}` : "1";
}
