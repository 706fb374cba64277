// What stands where no robot is: how to connect one.

import { apiKey } from "../preferences.js";
import { copy, el, setText } from "../dom.js";

const PATH = "/v1/realtime/robot/openpi";

/** `policies`: the names of those that are served. */
export function welcome(policies) {
  if (!policies.length) return nothingServed();
  const [key, option] = apiKey.get() ? [', api_key="…"', " --api-key …"] : ["", ""];
  const [first, ...others] = policies;
  return [
    el("p", { class: "lead" }, "No robot is connected."),
    el(
      "p",
      {},
      "This server has the policy ",
      el("code", {}, first),
      others.length ? [" and, with ", el("code", {}, "?policy=…"), " in the address, ", others.join(", ")].reduce(join, el("span")) : "",
      ". Any robot that speaks OpenPI's protocol can use it, with the client from PyPI as it is:",
    ),
    snippet(
      "Python",
      "from openpi_client.websocket_client_policy import WebsocketClientPolicy\n\n" +
        `policy = WebsocketClientPolicy("${address()}"${key})\n` +
        "chunk = policy.infer(observation)[\"actions\"]  # [H, A] float32",
    ),
    el("p", {}, "Or have simulated ones do it, and watch them here:"),
    snippet("Shell", `antiphon robot sim --url ${location.origin}${option} --task all --robots 4`),
  ];
}

/** Where robots connect. */
export function address() {
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${PATH}`;
}

function nothingServed() {
  return [
    el("p", { class: "lead" }, "This server has no robot policy."),
    el(
      "p",
      {},
      "Install what policies need (",
      el("code", {}, "pip install 'antiphon[robot]'"),
      "), name one in ",
      el("code", {}, "robots.policies"),
      " of the configuration, and start the server again.",
    ),
  ];
}

function snippet(language, text) {
  const button = el("button", { type: "button", class: "quiet", onclick: press, "aria-label": `Copy the ${language} lines` }, "Copy");
  async function press() {
    setText(button, (await copy(text)) ? "Copied" : "Not copied");
    setTimeout(() => setText(button, "Copy"), 2000);
  }
  return el("figure", { class: "snippet" }, el("pre", {}, el("code", {}, text)), button);
}

function join(element, part) {
  element.append(part);
  return element;
}
