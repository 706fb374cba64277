// Building the page. Text is always text here: nothing from the server is ever parsed as HTML.

/**
 * Make an element: `el("button", { class: "quiet", onclick }, "Stop")`.
 * Attributes: `on…` adds a listener, `value`/`checked`/`disabled`… set the property, null and false leave it out.
 */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (PROPERTIES.has(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open", "textContent", "selected", "htmlFor"]);

/** Set an element's text, touching the document only when it changes. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

let announcements = 0;

/** Say something to a screen reader. */
export function announce(text) {
  const region = document.getElementById("announcer");
  if (!region || !text) return;
  region.append(el("p", { id: `announcement-${++announcements}` }, text));
  while (region.childElementCount > 5) region.firstElementChild.remove();
}

/** Whether keys typed now go into a text field (or work a control), so that they are no shortcuts. */
export function typing(target) {
  return target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable]") !== null;
}

/** Call `work` at most once a frame. */
export function onFrame(work) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      work();
    });
  };
}

/** Copy text; without the permission (or on plain http) through a selection. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = el("textarea", { class: "unseen", value: text });
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}
