// Where the time of a turn went: the server's own marks when it tells them, what the browser saw otherwise. No document in here.

/** The parts of the way from the end of the user's speech to the first audio, in their order. */
export const PARTS = [
  { name: "endpoint", title: "End of turn", about: "waiting until it is sure that you have finished" },
  { name: "transcript", title: "Transcript", about: "writing down the last words" },
  { name: "text", title: "First text", about: "the chat model's first token" },
  { name: "audio", title: "First audio", about: "the first clause, spoken" },
];

const KEPT = 30;

export class Timings {
  turns = [];
  #byResponse = new Map();
  #pending = null;

  /** Take a server event that came at `at` (ms). `detection` is the session's turn detection. */
  apply(event, at, detection) {
    switch (event.type) {
      case "input_audio_buffer.speech_stopped":
        // Of the pause that the server waited for the browser knows only the setting.
        this.#begin(event.item_id, at - (detection?.silence_duration_ms ?? 0), at);
        break;
      case "input_audio_buffer.committed":
        this.#mark(this.#find(event.item_id) ?? this.#begin(event.item_id, at), "committed", at);
        break;
      case "conversation.item.added":
        if (event.item.role === "user" && !this.#find(event.item.id)) this.#begin(event.item.id, at, at);
        break;
      case "conversation.item.input_audio_transcription.completed":
        this.#mark(this.#find(event.item_id), "transcript", at);
        break;
      case "response.created":
        this.#answer(event.response.id);
        break;
      case "response.output_audio_transcript.delta":
      case "response.output_text.delta":
        this.#mark(this.#byResponse.get(event.response_id), "text", at);
        break;
      case "response.output_audio.delta":
      case "output_audio_buffer.started":
        this.#mark(this.#byResponse.get(event.response_id), "audio", at);
        break;
      case "response.done":
        this.#ended(event.response);
        break;
    }
  }

  /** The server's report of the session: its figures replace ours. */
  learn(report) {
    for (const reported of report?.turns ?? []) {
      const turn = this.#find(reported.item_id);
      if (!turn) continue;
      turn.report = reported;
    }
  }

  #begin(itemId, zero, endpoint = null) {
    let turn = this.#find(itemId);
    if (!turn) {
      turn = { itemId, responseId: null, status: "", zero, marks: {}, report: null };
      this.turns.push(turn);
      if (this.turns.length > KEPT) this.turns.shift();
    }
    turn.zero = zero;
    if (endpoint !== null) turn.marks.endpoint = endpoint - zero;
    this.#pending = turn;
    return turn;
  }

  #answer(responseId) {
    if (!this.#pending) return;
    this.#pending.responseId = responseId;
    this.#byResponse.set(responseId, this.#pending);
    if (this.#byResponse.size > 2 * KEPT) this.#byResponse.delete(this.#byResponse.keys().next().value);
  }

  #ended(response) {
    const turn = this.#byResponse.get(response.id);
    if (turn) turn.status = response.status;
  }

  #mark(turn, name, at) {
    if (turn && turn.marks[name] === undefined) turn.marks[name] = at - turn.zero;
  }

  #find(itemId) {
    return this.turns.find((turn) => turn.itemId === itemId) ?? null;
  }
}

/** When each part of a turn ended, in ms after the end of speech; the server's marks where there are any. */
export function endsOf(turn) {
  const marks = turn.report?.marks_ms;
  if (!marks)
    return {
      endpoint: turn.marks.endpoint ?? turn.marks.committed,
      transcript: turn.marks.transcript,
      text: turn.marks.text,
      audio: turn.marks.audio,
    };
  return {
    endpoint: marks.committed,
    transcript: marks.transcript_ready,
    text: turn.report.stages_ms?.chat?.first,
    audio: marks.first_audio,
  };
}

/**
 * The parts of a turn that are known, one after the other: `[{ name, from, to }]` in ms after the end of speech.
 * A part that was over before the one before it (the transcript may be ready before the turn's end is certain) has no length and is left out.
 */
export function segments(turn) {
  const ends = endsOf(turn);
  const found = [];
  let from = 0;
  for (const { name } of PARTS) {
    const to = ends[name];
    if (to === undefined || to === null || to <= from) continue;
    found.push({ name, from, to });
    from = to;
  }
  return found;
}

/** Milliseconds from the end of speech to the first audio (or text, in a written answer); null while there is none. */
export function total(turn) {
  const ends = endsOf(turn);
  return ends.audio ?? ends.text ?? null;
}

/** The median of numbers, null of none. */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (!sorted.length) return null;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
