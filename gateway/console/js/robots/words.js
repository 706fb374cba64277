// What the robots room says.

import { ApiError } from "../api.js";
import { Problem, refusalProblem } from "../problems.js";

const STATUSES = {
  waiting: "waits for the policy",
  working: "is being made",
  chunk: "was sent",
  superseded: "superseded: a newer observation came first",
  late: "late: its deadline could not be kept",
  fenced: "fenced: the robot moved on",
  refused: "refused: something in the request was wrong",
  failed: "failed: the policy could not",
};

export const STATES = {
  inferring: "inferring",
  executing: "executing",
  idle: "idle",
  leased: "away, kept for its return",
  ended: "ended",
  gone: "gone",
};

/** Milliseconds: 3.4 ms, 34 ms, 1.20 s; a dash for null. */
export function ms(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

/** A count of episodes: 3 of 4. Those of which the robot said nothing are not among them. */
export function success({ success, failure }) {
  return success + failure ? `${success}/${success + failure}` : "–";
}

/** What is to be said of a request when somebody points at it: a title and lines. */
export function about(chunk) {
  const title = chunk.chunk_id !== null ? `Chunk ${chunk.chunk_id}` : `Request ${chunk.number}`;
  const lines = [STATUSES[chunk.status] ?? chunk.status];
  const marks = [`epoch ${chunk.epoch}`];
  if (chunk.episode !== null) marks.push(`episode ${chunk.episode}`);
  if (chunk.sequence !== null) marks.push(`sequence ${chunk.sequence}`);
  lines.push(marks.join(" · "));
  const { waited, making, round } = spans(chunk);
  const times = [];
  if (waited !== null) times.push(`waited ${ms(waited)}`);
  if (making !== null) times.push(`made in ${ms(making)}`);
  if (round !== null) times.push(`${chunk.status === "chunk" ? "sent" : "answered"} after ${ms(round)}`);
  if (times.length) lines.push(times.join(", "));
  const more = [];
  if (chunk.prefix) more.push(`continues ${chunk.prefix} actions`);
  if (chunk.batch !== null) more.push(chunk.batch > 1.05 ? `shared its steps with ${(chunk.batch - 1).toFixed(1)} others` : "had its steps alone");
  if (more.length) lines.push(more.join(", "));
  if (chunk.deadline !== null) lines.push(deadline(chunk));
  return { title, lines };
}

/** How long a request waited, was worked on, and took in all, in ms; null: not known (yet). */
export function spans({ arrived, begun, made, left }) {
  const between = (from, to) => (from === null || to === null ? null : 1000 * (to - from));
  return { waited: between(arrived, begun), making: between(begun, made), round: between(arrived, left) };
}

function deadline({ arrived, deadline, left }) {
  const given = `deadline ${ms(1000 * (deadline - arrived))}`;
  if (left === null) return given;
  return left <= deadline ? `${given}, ${ms(1000 * (deadline - left))} to spare` : `${given}, missed by ${ms(1000 * (left - deadline))}`;
}

/** An error of this room as a `Problem`. */
export function robotsProblem(error) {
  if (!(error instanceof ApiError)) return new Problem("fault", "The robots cannot be shown.", `${error.message} Reload the page.`);
  if (error.status === 0)
    return new Problem("unreachable", "The server does not answer.", "What is shown below is the last that was heard of its robots.");
  return refusalProblem(error);
}
