// Starts the console: navigation by the address's hash, one room in view at a time. A room that has been built stays, so a call
// goes on while its owner looks at another room.

import { el, setText } from "./dom.js";
import { ROOMS } from "./rooms.js";

const main = document.getElementById("main");
const built = new Map();
let current = null;

function wanted() {
  const name = location.hash.replace(/^#\/?/, "").split("/")[0];
  return ROOMS.find((room) => room.name === name) ?? ROOMS[0];
}

async function show() {
  const room = wanted();
  if (room === current) return;
  current = room;
  for (const link of document.querySelectorAll("#rooms a")) {
    if (link.dataset.room === room.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = room === ROOMS[0] ? "Antiphon" : `${room.title} · Antiphon`;
  if (!built.has(room.name))
    built.set(
      room.name,
      room.load().then((module) => module.build({ serverState })),
    );
  const view = await built.get(room.name);
  if (room !== current) return; // the visitor has moved on meanwhile
  for (const other of main.querySelectorAll(":scope > [data-room]")) {
    if (other === view.element || other.hidden) continue;
    other.hidden = true;
    (await built.get(other.dataset.room)).leave?.();
  }
  if (!view.element.isConnected) {
    view.element.dataset.room = room.name;
    main.append(view.element);
  }
  view.element.hidden = false;
  view.enter?.();
}

/** The masthead's word about the server: `kind` is good, busy or bad. */
function serverState(kind, text) {
  const place = document.getElementById("server");
  place.dataset.kind = kind;
  setText(place, text);
}

document
  .getElementById("rooms")
  .append(...ROOMS.map((room) => el("a", { href: `#/${room.name}`, dataset: { room: room.name } }, room.title)));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash belongs to the rooms
  main.focus();
});
window.addEventListener("hashchange", show);
show();
