// The style sheet's colours for the pictures, read once and again when the scheme changes.

const EPOCHS = 6;
const NAMES = ["ink", "dim", "faint", "line", "edge", "accent", "panel", "sunken", "busy", "bad"];

let current = null;
const dark = window.matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", () => (current = null));

/** The colours by their names in the style sheet, `epochs`: those that the epochs take in turn. */
export function palette() {
  if (current === null) {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    current = Object.fromEntries(NAMES.map((name) => [name, read(name)]));
    current.epochs = Array.from({ length: EPOCHS }, (_, epoch) => read(`epoch-${epoch}`));
    current.name = dark.matches ? "dark" : "light";
    current.font = getComputedStyle(document.body).fontFamily;
  }
  return current;
}
