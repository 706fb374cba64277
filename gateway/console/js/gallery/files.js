// The files of jobs. They may need the API key, which an <img> cannot send, so they are fetched and shown by object URLs; each is
// freed when it is replaced or no longer shown.

import { request } from "../api.js";

const PATIENCE = 120_000;

/** Read a file of the server as a blob; null when there is none (yet). Throws `ApiError`, or the abort of `signal`. */
export async function fetchFile(path, signal) {
  const answer = await request(path, { timeout: PATIENCE, accept: [404], signal });
  if (answer.status === 404 || answer.status === 204) return null;
  return answer.blob();
}

/** What one place of the page shows: at most one object URL at a time. */
export class Shown {
  #url = "";
  #fetching = null;
  #path = "";
  blob = null;

  /** The object URL of the file at `path`, fetched anew unless it is shown already; null when there is none, or a later call won. */
  async load(path) {
    if (path === this.#path && this.#url) return this.#url;
    this.#fetching?.abort();
    const fetching = (this.#fetching = new AbortController());
    const blob = await fetchFile(path, fetching.signal).catch((error) => {
      if (fetching.signal.aborted) return null;
      throw error;
    });
    if (blob === null || fetching.signal.aborted) return null;
    this.#path = path;
    return this.put(blob);
  }

  /** Show these bytes instead; gives their object URL. */
  put(blob) {
    if (this.#url) URL.revokeObjectURL(this.#url);
    this.blob = blob;
    this.#url = URL.createObjectURL(blob);
    return this.#url;
  }

  /** Stop fetching, and free what is shown. */
  free() {
    this.#fetching?.abort();
    if (this.#url) URL.revokeObjectURL(this.#url);
    this.#url = this.#path = "";
    this.blob = null;
  }
}

/** Have the browser save a blob under a name. */
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000); // the browser reads it after the click
}
