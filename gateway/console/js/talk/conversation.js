// The conversation as a person reads it, put together from the server's events. No document in here: events in, lines out.

/**
 * A line: what one side said in one item.
 * `text` is what was said, `kept` how many characters of it were heard (null: all), `heardMs` where it was cut;
 * `state` is listening (the user speaks), writing (text still comes), done or failed; `speech` tells spoken from written;
 * `marks` are the positions [characters, ms] in the assistant's audio at which pieces of text begin, `audioMs` is the audio that has
 * come, `whole` says that no more will.
 */
function newLine(id, role, at) {
  return {
    id,
    role,
    at,
    text: "",
    kept: null,
    heardMs: null,
    state: "writing",
    speech: false,
    responseId: null,
    note: "",
    audioMs: 0,
    whole: false,
    marks: [],
  };
}

export class Conversation {
  lines = [];
  #changed = new Set();

  /** Take a server event that came at `at` (ms). */
  apply(event, at) {
    const take = HANDLERS[event.type];
    if (take) take(this, event, at);
  }

  /** The ids of lines that have changed since the last call. */
  changes() {
    const changed = this.#changed;
    this.#changed = new Set();
    return changed;
  }

  find(id) {
    return this.lines.find((line) => line.id === id) ?? null;
  }

  /** The line of an item, made at the end when it is new. */
  line(id, role, at) {
    let line = this.find(id);
    if (!line) this.lines.push((line = newLine(id, role, at)));
    this.#changed.add(id);
    return line;
  }

  touch(line) {
    this.#changed.add(line.id);
  }

  /** Put an item's line after that of the item before it; the lines of things that are not shown are passed over. */
  place(line, previousId) {
    const previous = this.lines.findIndex((other) => other.id === previousId);
    if (previous < 0) return;
    this.lines.splice(this.lines.indexOf(line), 1);
    this.lines.splice(this.lines.findIndex((other) => other.id === previousId) + 1, 0, line);
  }

  remove(id) {
    this.lines = this.lines.filter((line) => line.id !== id);
    this.#changed.add(id);
  }
}

/** How many characters of `said` are heard when the server keeps `kept` of it: it may have changed the blanks. */
export function heardLength(said, kept) {
  if (said.startsWith(kept)) return kept.length;
  let at = 0;
  for (const character of kept) {
    if (/\s/.test(character)) continue;
    while (at < said.length && /\s/.test(said[at])) at++;
    if (said[at] !== character) break;
    at++;
  }
  return at;
}

const SPOKEN = 15; // characters a second, for a piece whose audio has not all come (or travels on a track, where nobody counts it)

/** How many characters had begun to be spoken `ms` into an answer's audio: between two marks evenly. Ends with a whole word. */
export function lengthAt(line, ms) {
  if (ms <= 0) return 0;
  const [begun, at] = line.marks.at(-1) ?? [0, 0];
  const end = line.whole && line.audioMs ? line.audioMs : Math.max(line.audioMs, at + ((line.text.length - begun) * 1000) / SPOKEN);
  const marks = [...line.marks, [line.text.length, end]];
  const next = marks.findIndex(([, start]) => start > ms);
  if (next < 0) return line.text.length;
  const [from, start] = next > 0 ? marks[next - 1] : [0, 0];
  const [to, stop] = marks[next];
  const length = from + Math.round(((to - from) * (ms - start)) / (stop - start));
  const word = line.text.slice(length).match(/^\S*/)[0];
  return length === from ? from : length + word.length;
}

function keep(conversation, line, transcript) {
  const length = heardLength(line.text, transcript);
  if (line.kept === length || (line.kept === null && length >= line.text.length)) return;
  line.kept = length;
  conversation.touch(line);
}

function ended(conversation, responseId, status, details) {
  for (const line of conversation.lines) {
    if (line.responseId !== responseId) continue;
    line.state = status === "failed" ? "failed" : "done";
    line.whole = status === "completed";
    if (status === "failed") line.note = details?.error?.message ?? "The answer failed.";
    if (status === "incomplete") line.note = "Cut off at the token limit.";
    conversation.touch(line);
  }
}

function transcriptOf(item) {
  return (item.content ?? []).map((part) => part.transcript ?? part.text ?? "").join("");
}

function added(conversation, { item, previous_item_id: previousId }, at) {
  if (item.type === "function_call_output" || item.role === "system") return;
  const line = conversation.line(item.id, item.type === "function_call" ? "tool" : item.role, at);
  if (item.role === "user") {
    line.speech = (item.content ?? []).some((part) => part.type === "input_audio");
    line.text ||= transcriptOf(item);
    line.state = line.speech ? "writing" : "done";
  }
  conversation.place(line, previousId);
}

function answer(conversation, event, at) {
  const line = conversation.line(event.item_id, "assistant", at);
  line.responseId = event.response_id;
  return line;
}

const HANDLERS = {
  "input_audio_buffer.speech_started"(conversation, event, at) {
    const line = conversation.line(event.item_id, "user", at);
    line.speech = true;
    line.state = "listening";
  },
  "input_audio_buffer.speech_stopped"(conversation, event, at) {
    conversation.line(event.item_id, "user", at).state = "writing";
  },
  "input_audio_buffer.cleared"(conversation) {
    for (const line of conversation.lines.filter((each) => each.state === "listening")) conversation.remove(line.id);
  },
  "conversation.item.added": added,
  "conversation.item.deleted"(conversation, event) {
    conversation.remove(event.item_id);
  },
  "conversation.item.input_audio_transcription.delta"(conversation, event, at) {
    const line = conversation.line(event.item_id, "user", at);
    line.speech = true;
    line.text += event.delta;
  },
  "conversation.item.input_audio_transcription.completed"(conversation, event, at) {
    const line = conversation.line(event.item_id, "user", at);
    line.text = event.transcript;
    line.state = "done";
    if (!event.transcript.trim()) line.note = "Nothing understood.";
  },
  "conversation.item.input_audio_transcription.failed"(conversation, event, at) {
    const line = conversation.line(event.item_id, "user", at);
    line.state = "failed";
    line.note = event.error?.message ?? "This could not be transcribed.";
  },
  "response.output_audio_transcript.delta"(conversation, event, at) {
    const line = answer(conversation, event, at);
    line.speech = true;
    if (!line.marks.length || line.audioMs > line.marks.at(-1)[1]) line.marks.push([line.text.length, line.audioMs]);
    line.text += event.delta;
  },
  "response.output_audio.delta"(conversation, event, at) {
    answer(conversation, event, at).audioMs += event.duration_ms ?? 0;
  },
  "response.output_audio_transcript.done"(conversation, event, at) {
    keep(conversation, answer(conversation, event, at), event.transcript);
  },
  "response.output_text.delta"(conversation, event, at) {
    answer(conversation, event, at).text += event.delta;
  },
  "response.function_call_arguments.done"(conversation, event, at) {
    const line = conversation.line(event.item_id, "tool", at);
    line.responseId = event.response_id;
    line.text = `${event.name}(${event.arguments})`;
    line.state = "done";
  },
  "conversation.item.truncated"(conversation, event) {
    const line = conversation.find(event.item_id);
    if (!line) return;
    line.heardMs = event.audio_end_ms;
    // A good guess until the server has said what it keeps.
    if (line.kept === null && line.text) line.kept = lengthAt(line, event.audio_end_ms);
    conversation.touch(line);
  },
  "conversation.item.retrieved"(conversation, event) {
    const line = conversation.find(event.item.id);
    if (line?.role === "assistant") keep(conversation, line, transcriptOf(event.item));
  },
  "response.done"(conversation, event) {
    const { id, status, status_details: details, output } = event.response;
    for (const item of output ?? []) {
      const line = conversation.find(item.id);
      if (line?.role === "assistant" && line.speech) keep(conversation, line, transcriptOf(item));
    }
    ended(conversation, id, status, details);
  },
};
