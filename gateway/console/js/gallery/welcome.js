// What stands where no job is yet: what to write, as buttons.

import { el } from "../dom.js";

const PICTURES = [
  "a large red circle above a small blue square on a white background",
  "three yellow stars on a purple background",
  "a green heart at the bottom right on a black background",
];
const CLIPS = ["a small orange diamond moving right on a white background", "a blue ring growing on a yellow background"];

/** Example prompts; `choose({prompt, kind})` is called with the one that was pressed. A model may bring its own. */
export function welcome(model, choose) {
  const own = (model.examples ?? []).map(({ prompt, kind }) => [prompt, kind]);
  const usual = [...PICTURES.map((prompt) => [prompt, "picture"]), ...CLIPS.map((prompt) => [prompt, "clip"])];
  const offered = (own.length ? own : usual).filter(([, kind]) => model[`${kind}s`]);
  const buttons = offered.map(([prompt, kind]) => {
    const what = el("span", { class: "what" }, kind === "clip" ? "Clip" : "Picture");
    return el("li", {}, el("button", { type: "button", class: "example", onclick: () => choose({ prompt, kind }) }, what, prompt));
  });
  return [
    el("p", { class: "lead" }, "Nothing has been drawn yet."),
    el("p", {}, "Write what you would like to see, or begin with one of these:"),
    el("ul", { class: "examples" }, ...buttons),
  ];
}

/** What to say on a server without a model for pictures or clips. */
export function nothingServed() {
  return [
    el("p", { class: "lead" }, "This server draws no pictures and clips."),
    el(
      "p",
      {},
      "Install what that needs (",
      el("code", {}, "pip install 'antiphon[media]'"),
      "), name an engine in ",
      el("code", {}, "server.media"),
      " of the configuration, and start the server again.",
    ),
  ];
}
