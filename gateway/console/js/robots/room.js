// The robots room: which robots there are, how they fare, and every chunk that they get, live.

import { json } from "../api.js";
import { announce, el, setText } from "../dom.js";
import { Polling } from "../operations/polling.js";
import { Card } from "./card.js";
import { Fleet, ServerClock } from "./fleet.js";
import { Tip } from "./tip.js";
import { welcome } from "./welcome.js";
import { ms, robotsProblem } from "./words.js";

const INTERVAL = 330; // ms between looks
const SLOWEST = 5000; // ms between looks when nobody answers
const BEHIND = 0.45; // seconds that the pictures lag: by then what happened is known
const MANY = 12; // with more robots each gets one line
const HEADS = ["Robot", "Prompt", "Its chunks", "Median", "Success"];
const FRAME = { few: 1000 / 30, many: 1000 / 12 }; // ms between pictures
const NEAR = "200px"; // beyond the edge of the screen: pictures are drawn before they are seen
const OVERLAP = 0.05; // seconds that are asked for again

const still = window.matchMedia("(prefers-reduced-motion: reduce)");

/** A room for `rooms.js`. */
export function build(context) {
  return new RobotsRoom(context);
}

class RobotsRoom {
  element;
  #serverState;
  #notice = el("p", { class: "notice problem", role: "alert", hidden: true });
  #figures = {
    connected: figure("Robots", "Connected now, and those whose session is kept for their return"),
    rate: figure("Chunks a second", "Over the last five seconds"),
    p50: figure("Round trip, median", "From an observation's arrival to its chunk at the socket, over the last ten seconds"),
    p99: figure("99 % within", "From an observation's arrival to its chunk at the socket, over the last ten seconds"),
    late: figure("Late", "Answers without a chunk because the deadline could not be kept, since the server's start"),
    superseded: figure("Superseded", "Observations for which a newer one came first, since the server's start"),
    refused: figure("Refused or failed", "Requests that were wrong, or that the policy could not serve, since the server's start"),
    success: figure("Success", "Of the episodes whose robot told how they went, since the server's start"),
  };
  #welcome = el("div", { class: "welcome", hidden: true });
  #greeted = null;
  #list = el("ul", { class: "fleet", "aria-label": "Robots" });
  #heads = el("div", { class: "heads", "aria-hidden": "true", hidden: true }, ...HEADS.map((title) => el("span", {}, title)));
  #legend = legend();
  #tip = new Tip();
  #fleet = new Fleet();
  #clock = new ServerClock();
  #cards = new Map();
  #polling = new Polling(() => this.#look(), { interval: INTERVAL, slowest: SLOWEST });
  #near = new IntersectionObserver((seen) => this.#seen(seen), { rootMargin: NEAR });
  #frame = null;
  #drawnAt = 0;
  #failing = false;
  #here = false;
  #told = null;

  constructor({ serverState }) {
    this.#serverState = serverState;
    this.element = el(
      "div",
      { class: "room robots" },
      el("h1", { class: "unseen" }, "Robots"),
      this.#notice,
      el("dl", { class: "figures" }, ...Object.values(this.#figures).map(({ element }) => element)),
      this.#welcome,
      this.#legend,
      this.#heads,
      this.#list,
      this.#tip.element,
    );
  }

  enter() {
    this.#here = true;
    this.#polling.start();
    this.#animate();
  }

  leave() {
    this.#here = false;
    this.#polling.stop();
    cancelAnimationFrame(this.#frame);
    this.#tip.hide();
  }

  // ---- asking ----

  async #look() {
    const asked = performance.now();
    const since = this.#fleet.loaded && !this.#failing ? `?since=${(this.#fleet.now - OVERLAP).toFixed(3)}` : "";
    try {
      const answer = await json(`/v1/robots${since}`);
      this.#clock.hear(answer.now, asked, performance.now());
      this.#fleet.take(answer);
    } catch (error) {
      this.#failed(error);
      throw error;
    }
    if (this.#failing) announce("The server answers again.");
    this.#failing = false;
    this.#notice.hidden = true;
    this.element.classList.remove("stale");
    this.#serverState("good", "Server ready");
    this.#render();
  }

  #failed(error) {
    const { title, advice } = robotsProblem(error);
    const again = error.status === 401 ? "" : ` Looking again in ${Math.max(1, Math.round((this.#polling.pause * 2) / 1000))} s.`;
    const words = ` ${advice}${again}`;
    if (this.#notice.hidden || this.#notice.lastChild?.data !== words) this.#notice.replaceChildren(el("strong", {}, title), words);
    this.#notice.hidden = false;
    this.#failing = true;
    this.element.classList.add("stale");
    this.#serverState("bad", error.status === 401 ? "Key needed" : "No answer");
  }

  // ---- showing ----

  #render() {
    const { robots } = this.#fleet;
    for (const [id, card] of this.#cards) {
      if (robots.has(id)) continue;
      this.#near.unobserve(card.element);
      card.free();
      if (card.held) this.#tip.hide();
      card.element.remove();
      this.#cards.delete(id);
    }
    const compact = robots.size > MANY;
    this.element.classList.toggle("compact", compact);
    for (const [id, robot] of robots) {
      const card = this.#cards.get(id) ?? this.#add(id, compact);
      card.compact = compact;
      card.show(robot);
    }
    this.#legend.hidden = robots.size === 0;
    this.#heads.hidden = !compact;
    this.#greet(robots.size === 0);
    this.#header();
    if (still.matches) this.#draw();
  }

  #add(id, compact) {
    const card = new Card(id, (about, x, y) => this.#tip.show(about, x, y));
    card.compact = compact;
    this.#cards.set(id, card);
    this.#list.append(card.element);
    this.#near.observe(card.element);
    return card;
  }

  #header() {
    const now = this.#fleet.figures();
    const show = this.#figures;
    show.connected.show(String(now.connected), now.away ? `${now.away} away` : "");
    show.rate.show(now.rate.toFixed(1));
    show.p50.show(ms(now.p50));
    show.p99.show(ms(now.p99));
    show.late.show(String(now.late), "", now.late ? "busy" : "");
    show.superseded.show(String(now.superseded));
    show.refused.show(String(now.refused), "", now.refused ? "bad" : "");
    const share = now.judged ? `${Math.round((100 * now.success) / now.judged)} %` : "–";
    const of = now.judged ? `${now.success} of ${now.judged}` : "no episode yet";
    show.success.show(share, now.unknown ? `${of}, ${now.unknown} unknown` : of);
    this.#tell(now.connected);
  }

  /** Say to a screen reader that robots came or went. */
  #tell(connected) {
    if (this.#told !== null && this.#told !== connected) announce(`${connected} ${connected === 1 ? "robot" : "robots"} connected.`);
    this.#told = connected;
  }

  #greet(empty) {
    const policies = this.#fleet.policies.join();
    this.#welcome.hidden = !empty;
    if (!empty || this.#greeted === policies) return;
    this.#greeted = policies;
    this.#welcome.replaceChildren(...welcome(this.#fleet.policies));
  }

  // ---- drawing ----

  #animate() {
    cancelAnimationFrame(this.#frame);
    const turn = (at) => {
      this.#frame = requestAnimationFrame(turn);
      const least = this.#cards.size > MANY ? FRAME.many : FRAME.few;
      if (still.matches || at - this.#drawnAt < least - 2) return;
      this.#drawnAt = at;
      this.#draw();
    };
    this.#frame = requestAnimationFrame(turn);
  }

  /** Never past what is known: when the server is silent, the pictures stand. */
  #draw() {
    if (!this.#here || !this.#fleet.loaded) return;
    const now = Math.min(this.#clock.now() - BEHIND, this.#fleet.now);
    for (const card of this.#cards.values()) if (card.near) card.draw(now);
  }

  #seen(entries) {
    const cards = new Map([...this.#cards.values()].map((card) => [card.element, card]));
    for (const { target, isIntersecting } of entries) {
      const card = cards.get(target);
      if (card) card.near = isIntersecting;
    }
  }
}

function figure(title, about) {
  const value = el("dd", {}, "–");
  const more = el("dd", { class: "aside" });
  const show = (text, note = "", kind = "") => {
    setText(value, text);
    setText(more, note);
    value.dataset.kind = kind;
  };
  return { element: el("div", { class: "figure", title: about }, el("dt", {}, title), value, more), show };
}

function legend() {
  const items = [
    ["waits", "waits"],
    ["making", "being made"],
    ["executed", "being executed"],
    ["replaced", "taken over by a newer chunk"],
    ["deadline", "deadline"],
    ["fence", "fence: a new epoch, in another colour"],
    ["superseded", "superseded"],
    ["late", "late"],
    ["fenced", "fenced"],
    ["refused", "refused or failed"],
  ];
  const signs = items.map(([name, text]) => el("li", { dataset: { sign: name } }, text));
  return el("ul", { class: "key", "aria-label": "What the pictures show", hidden: true }, ...signs);
}
