// The events of a call, as the inspector shows them. No document in here.

export const LIMIT = 1000;

const AUDIO = new Set(["input_audio_buffer.append", "response.output_audio.delta"]);

/** Bounded: the oldest entries go first. Audio events between two others are one entry a direction, with a count. */
export class EventLog {
  entries = [];
  paused = false;
  missed = 0;
  #next = 1;

  /** Note an event; `direction` is sent or received, `at` in ms since the call began. Returns the entry, null while paused. */
  add(direction, event, at) {
    if (this.paused) {
      this.missed++;
      return null;
    }
    const running = AUDIO.has(event.type) ? this.#running(event.type) : null;
    if (running) {
      running.count++;
      running.event = event;
      return running;
    }
    const entry = { id: this.#next++, direction, at, event, count: 1, error: failed(event) };
    this.entries.push(entry);
    if (this.entries.length > LIMIT) this.entries.shift();
    return entry;
  }

  /** The entry of this kind in the stretch of nothing but audio that the log ends with. */
  #running(type) {
    for (let at = this.entries.length - 1; at >= 0 && AUDIO.has(this.entries[at].event.type); at--) {
      if (this.entries[at].event.type === type) return this.entries[at];
    }
    return null;
  }

  clear() {
    this.entries = [];
    this.missed = 0;
  }

  /** The entries that pass a filter (see `matcher`). */
  shown(matches) {
    return this.entries.filter(matches);
  }
}

function failed(event) {
  return event.type === "error" || event.type.endsWith(".failed") || event.response?.status === "failed";
}

/**
 * A filter from what was typed and the chosen direction (all, sent, received, errors).
 * Every word must be found in the event's type or ids; a word with a minus in front must not.
 */
export function matcher(typed, direction = "all") {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  return (entry) => {
    if (direction === "errors" ? !entry.error : direction !== "all" && entry.direction !== direction) return false;
    const text =
      `${entry.event.type} ${entry.event.item_id ?? entry.event.item?.id ?? ""} ${entry.event.response_id ?? entry.event.response?.id ?? ""}`.toLowerCase();
    return words.every((word) => (word.length > 1 && word.startsWith("-") ? !text.includes(word.slice(1)) : text.includes(word)));
  };
}

/** A few words that tell one event from another of its type. */
export function gist({ event }) {
  const said = event.delta ?? event.transcript ?? event.text ?? event.error?.message ?? event.message;
  if (typeof said === "string") return event.type.includes("audio.delta") ? "" : said;
  if (event.response) return [event.response.status, event.response.status_details?.reason].filter(Boolean).join(" · ");
  if (event.type === "conversation.item.create") return event.item?.content?.[0]?.text ?? event.item?.type ?? "";
  if (event.item) return [event.item.role ?? event.item.type, event.item.status].filter(Boolean).join(" · ");
  if (event.audio_end_ms !== undefined) return `at ${event.audio_end_ms} ms`;
  if (event.audio_start_ms !== undefined) return `at ${event.audio_start_ms} ms`;
  return "";
}
