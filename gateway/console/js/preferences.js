// What the page remembers: the key for this tab only, everything else for the next visit.

const PREFIX = "antiphon.";

function area(name) {
  try {
    return window[name];
  } catch {
    return null; // storage is blocked: nothing is remembered
  }
}

function read(storage, key, fallback) {
  try {
    const text = area(storage)?.getItem(PREFIX + key);
    return text === null || text === undefined ? fallback : JSON.parse(text);
  } catch {
    return fallback;
  }
}

function write(storage, key, value) {
  try {
    area(storage)?.setItem(PREFIX + key, JSON.stringify(value));
  } catch {
    // storage is full or blocked; the page works without it
  }
}

export const apiKey = {
  get: () => read("sessionStorage", "key", ""),
  set: (key) => write("sessionStorage", "key", key),
};

export const preferences = {
  get: (name, fallback) => read("localStorage", name, fallback),
  set: (name, value) => write("localStorage", name, value),
};
