// A clip: its thumbnail until somebody wants to see it move, then a silent loop with one button.

import { el, setText } from "../dom.js";
import { Shown } from "./files.js";

export class Player {
  element;
  #poster = new Shown();
  #file = new Shown();
  #path;
  #fail;
  #asked = false;
  #video;
  #button;
  #words = el("span", {}, "Play");
  #place = el("progress", { class: "place", max: "1", value: 0, "aria-hidden": "true" });

  /**
   * `path` leads to the clip, `thumbnail` to its first frame. `ready()` is called when there is something to see, `fail(error)` when
   * either cannot be had.
   */
  constructor({ path, thumbnail, label, ready, fail }) {
    this.#path = path;
    this.#fail = fail;
    this.#video = el("video", { loop: true, muted: true, playsinline: true, preload: "none", "aria-label": label });
    this.#video.muted = true; // the attribute alone does not mute
    this.#button = el("button", { type: "button", class: "play", "aria-pressed": "false", onclick: () => this.toggle() }, this.#words);
    this.element = el("div", { class: "player" }, this.#video, this.#place, this.#button);
    this.#video.addEventListener("click", () => this.toggle());
    for (const name of ["play", "pause"]) this.#video.addEventListener(name, () => this.#update());
    this.#video.addEventListener("timeupdate", () => (this.#place.value = this.#video.currentTime / (this.#video.duration || 1)));
    this.#video.addEventListener("error", () => this.#asked && this.#fail(new Error("The browser cannot play this clip.")));
    this.#show(thumbnail, ready);
  }

  /** The bytes of the clip; null unless it was played. */
  get blob() {
    return this.#file.blob;
  }

  toggle() {
    if (this.#video.paused) this.play();
    else this.#video.pause();
  }

  async play() {
    try {
      if (!this.#asked) {
        setText(this.#words, "Loading…");
        const url = await this.#file.load(this.#path);
        if (url === null) throw new Error("The clip is not there any more.");
        this.#video.src = url;
        this.#asked = true;
      }
      await this.#video.play();
    } catch (error) {
      this.#update();
      if (error.name !== "AbortError") this.#fail(error); // paused or removed before it began
    }
  }

  /** Stop moving: nobody looks. */
  rest() {
    this.#video.pause();
  }

  free() {
    this.#video.pause();
    this.#asked = false;
    this.#video.removeAttribute("src");
    this.#video.load();
    this.#poster.free();
    this.#file.free();
  }

  async #show(thumbnail, ready) {
    try {
      const url = await this.#poster.load(thumbnail);
      if (url) {
        const seen = new Image();
        seen.src = url;
        await seen.decode();
        this.#video.poster = url;
      }
      ready();
    } catch (error) {
      this.#fail(error);
    }
  }

  #update() {
    const playing = !this.#video.paused;
    this.#button.setAttribute("aria-pressed", String(playing));
    setText(this.#words, playing ? "Pause" : "Play");
  }
}
