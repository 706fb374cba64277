// The gallery: ask for pictures and clips, and see them being made.

import { announce, el, setText } from "../dom.js";
import { Card, short } from "./card.js";
import { Composer } from "./composer.js";
import { JobList } from "./job-list.js";
import { clips, mediaModels, pictures } from "./routes.js";
import { Sending } from "./sending.js";
import { SendingCard } from "./sending-card.js";
import { nothingServed, welcome } from "./welcome.js";
import { mediaProblem } from "./words.js";

const SOURCES = { picture: pictures, clip: clips };
const NEAR = "300px"; // beyond the edge of the screen: files are fetched before they are seen
const AGES_MS = 1000;
const TOLD = 4; // with more jobs at once, only their ends are announced

/** A room for `rooms.js`. */
export function build(context) {
  return new GalleryRoom(context);
}

class GalleryRoom {
  element;
  #serverState;
  #jobs = new JobList([pictures, clips]);
  #cards = new Map(); // by the job's id
  #sendings = new Map(); // Sending -> its card
  #models = null;
  #composer = new Composer({ submit: (spec) => this.#submit(spec), onkey: () => this.#begin() });
  #notice = el("p", { class: "notice problem", role: "alert", hidden: true });
  #welcome = el("div", { class: "welcome", hidden: true });
  #list = el("ul", { class: "cards", "aria-label": "Pictures and clips, the newest first" });
  #more = el("button", { type: "button", class: "more", hidden: true, onclick: () => this.#older() }, "Older ones");
  #ages = null;
  #here = false;
  #near;
  #end;

  constructor({ serverState }) {
    this.#serverState = serverState;
    const scroller = el("div", { class: "shelf" }, this.#notice, this.#welcome, this.#list, this.#more);
    this.element = el(
      "div",
      { class: "room gallery" },
      el("h1", { class: "unseen" }, "Gallery"),
      el(
        "section",
        { class: "maker", "aria-labelledby": "maker-title" },
        el("h2", { id: "maker-title" }, "Make something"),
        this.#composer.element,
      ),
      scroller,
    );
    this.#near = new IntersectionObserver((seen) => this.#seen(seen), { rootMargin: NEAR });
    this.#end = new IntersectionObserver((seen) => seen.at(-1).isIntersecting && this.#older(), { rootMargin: NEAR });
    this.#end.observe(this.#more);
    this.#jobs.on("changed", () => this.#render());
    this.#jobs.on("looked", () => this.#serverState("good", "Server ready"));
    this.#jobs.on("failed", (error, pause) => this.#failed(error, pause));
    this.#jobs.on("recovered", () => this.#recovered());
  }

  enter() {
    this.#here = true;
    this.#composer.enter();
    this.#begin();
    this.#ages = setInterval(() => this.#render(), AGES_MS);
  }

  leave() {
    this.#here = false;
    this.#jobs.stop();
    clearInterval(this.#ages);
    for (const card of this.#cards.values()) card.near = false;
  }

  async #begin() {
    try {
      this.#models = await mediaModels();
    } catch (error) {
      this.#models = null;
      this.#failed(error, 0);
      if (error.status === 401) return;
    }
    if (this.#models !== null) {
      this.#composer.needKey(false);
      this.#composer.offer(this.#models);
      this.#notice.hidden = true;
      this.#serverState("good", "Server ready");
    }
    if (!this.#here) return;
    this.#jobs.stop();
    if (this.#models?.length !== 0) this.#jobs.start();
    this.#render();
  }

  // ---- asking ----

  #submit(spec) {
    const source = SOURCES[spec.kind];
    const parts = source.several ? [spec] : Array.from({ length: spec.number }, (_, index) => alone(spec, index));
    for (const part of parts) this.#send(new Sending(part, source, () => this.#render()));
    announce(parts.length > 1 ? `${parts.length} jobs sent.` : "Sent.");
    this.element.querySelector(".shelf").scrollTo({ top: 0 });
  }

  async #send(sending) {
    const actions = { stop: () => this.#forget(sending), again: () => this.#resend(sending), edit: () => this.#edit(sending) };
    this.#sendings.set(sending, new SendingCard(sending, actions));
    const job = await sending.run();
    if (job === null) {
      if (sending.error) announce(`Refused: ${mediaProblem(sending.error).title} ${mediaProblem(sending.error).advice}`);
      if (sending.error?.status === 401) this.#composer.needKey(true);
      return;
    }
    this.#forget(sending);
    this.#jobs.put(job);
  }

  #resend(sending) {
    if (sending.state === "waiting") return sending.hurry();
    this.#forget(sending);
    return this.#send(new Sending(sending.spec, sending.source, () => this.#render()));
  }

  #edit(sending) {
    this.#forget(sending);
    this.#composer.fill(sending.spec);
  }

  #forget(sending) {
    sending.stop();
    this.#sendings.get(sending)?.element.remove();
    this.#sendings.delete(sending);
    this.#render();
  }

  // ---- what can be done about a job ----

  /** Cancelling removes a job: nothing of it would be worth keeping. */
  async #cancel(job) {
    try {
      await SOURCES[job.kind].remove(job);
    } catch (error) {
      this.#refused(error);
      return;
    }
    this.#gone(job, `Cancelled: ${short(job.prompt)}`);
  }

  async #remove(job) {
    try {
      await SOURCES[job.kind].remove(job);
    } catch (error) {
      this.#refused(error);
      return;
    }
    this.#gone(job, `Deleted: ${short(job.prompt)}`);
  }

  /** Take its card away; the focus that was in it goes on to the next one. */
  #gone(job, words) {
    const card = this.#cards.get(job.id)?.element;
    const focused = card?.contains(document.activeElement);
    const neighbour = card?.nextElementSibling ?? card?.previousElementSibling;
    this.#jobs.drop(job);
    announce(words);
    if (focused) (neighbour?.querySelector(".acts button:not([hidden])") ?? this.#composer).focus();
  }

  #remix(job) {
    if (job.kind === "clip" && job.status === "completed") this.#composer.remix(job);
    else this.#composer.fill({ ...job, seed: null });
  }

  // ---- showing ----

  #render() {
    const shown = this.#jobs.shown;
    const ids = new Set(shown.map(({ id }) => id));
    for (const [id, card] of this.#cards) {
      if (ids.has(id)) continue;
      this.#near.unobserve(card.element);
      card.element.remove();
      card.free();
      this.#cards.delete(id);
    }
    const waiting = shown.filter(({ status }) => status === "queued").reverse(); // the oldest first
    const active = shown.filter(({ ended }) => !ended).length;
    const elements = [...this.#sendings].reverse().map(([sending, card]) => card.show(sending));
    for (const job of shown) {
      const card = this.#cards.get(job.id) ?? this.#add(job);
      if (card.job !== null) this.#tell(card.job, job, active);
      card.show(job, waiting.indexOf(job));
      elements.push(card.element);
    }
    place(this.#list, elements);
    this.#more.hidden = !this.#jobs.hasMore;
    this.#greet(elements.length === 0);
  }

  #add(job) {
    const card = new Card({
      cancel: (now) => this.#cancel(now),
      remove: (now) => this.#remove(now),
      remix: (now) => this.#remix(now),
      again: (now) => this.#composer.fill(now),
    });
    this.#cards.set(job.id, card);
    this.#near.observe(card.element);
    return card;
  }

  #seen(entries) {
    for (const { target, isIntersecting } of entries) {
      const card = [...this.#cards.values()].find(({ element }) => element === target);
      if (card) card.near = isIntersecting;
    }
  }

  #greet(empty) {
    const nothing = this.#models !== null && this.#models.length === 0;
    const hidden = !(nothing || (empty && this.#jobs.loaded && this.#models !== null));
    if (this.#welcome.hidden === hidden) return;
    this.#welcome.hidden = hidden;
    if (hidden) return;
    this.#welcome.replaceChildren(...(nothing ? nothingServed() : welcome(this.#models[0], (example) => this.#composer.fill(example))));
  }

  /** Say to a screen reader what has changed. */
  #tell(before, now, active) {
    const name = short(now.prompt);
    if (before.status !== now.status) {
      if (now.status === "completed") announce(`Done: ${name}${now.warnings.length ? `. ${now.warnings.join(" ")}` : ""}`);
      else if (now.status === "failed") announce(`Failed: ${name}. ${now.error?.message ?? ""}`);
      else if (now.status === "in_progress" && active <= TOLD) announce(`Drawing: ${name}`);
    } else if (active <= TOLD && before.progress < 50 && now.progress >= 50 && !now.ended) announce(`Half done: ${name}`);
  }

  async #older() {
    if (this.#more.disabled || !this.#jobs.loaded) return;
    this.#more.disabled = true;
    try {
      await this.#jobs.more();
    } catch (error) {
      this.#refused(error);
    }
    this.#more.disabled = false;
  }

  // ---- trouble ----

  #failed(error, pause) {
    if (error.status === 401) {
      this.#composer.needKey(true);
      this.#jobs.stop();
    }
    const { title, advice } = mediaProblem(error);
    const again = pause > 0 && error.status !== 401 ? ` Looking again in ${Math.round(pause / 1000)} s.` : "";
    this.#notice.replaceChildren(el("strong", {}, title), ` ${advice}${again}`);
    this.#notice.hidden = false;
    this.#serverState("bad", error.status === 401 ? "Key needed" : "No answer");
  }

  #recovered() {
    this.#notice.hidden = true;
    if (this.#models === null) this.#begin();
    for (const sending of this.#sendings.keys()) sending.hurry();
    for (const card of this.#cards.values()) card.retry();
    announce("The server answers again.");
  }

  /** Something that was asked of the server was not done. */
  #refused(error) {
    const { title, advice } = mediaProblem(error);
    this.#notice.replaceChildren(el("strong", {}, title), ` ${advice}`);
    this.#notice.hidden = false;
  }
}

/** One of several that were asked for: with a given seed they count up, as those of one job do. */
function alone(spec, index) {
  return { ...spec, number: 1, seed: spec.seed === null ? null : spec.seed + index };
}

/** Bring the children of a list into this order; what stands right is not touched, so that it keeps its focus and goes on playing. */
function place(list, elements) {
  let next = list.firstElementChild;
  for (const element of elements) {
    if (element === next) next = next.nextElementSibling;
    else list.insertBefore(element, next);
  }
}
