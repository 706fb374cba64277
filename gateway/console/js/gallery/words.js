// What the gallery says about jobs and problems.

import { ApiError } from "../api.js";
import { duration } from "../operations/sessions-table.js";
import { Problem } from "../problems.js";

const STATES = { queued: "Waiting", in_progress: "Drawing", completed: "Done", failed: "Failed", cancelled: "Cancelled" };

/** A job's state in a few words: its place in the queue while it waits, its age, how far it is. `ahead`: waiting jobs before it. */
export function stateOf(job, ahead, now = Date.now() / 1000) {
  const age = duration(now - job.created);
  if (job.status === "queued") return `${STATES.queued} for ${age}${ahead > 0 ? `, ${ahead} before it` : ""}`;
  if (job.status === "in_progress") return `${STATES.in_progress}, ${Math.round(job.progress)} %`;
  return STATES[job.status] ?? job.status;
}

/** The small print of a job: what it is, how large, how long ago. */
export function factsOf(job, now = Date.now() / 1000) {
  const facts = [job.kind === "clip" ? "Clip" : job.count > 1 ? `${job.count} pictures` : "Picture"];
  if (job.size) facts.push(job.size.replace("x", "×"));
  if (job.seconds) facts.push(`${job.seconds} s`);
  if (job.steps) facts.push(`${job.steps} steps`);
  if (job.seed !== null) facts.push(`seed ${job.seed}`);
  if (job.from) facts.push("remix");
  if (job.completed && job.status === "completed") facts.push(`made in ${duration(job.completed - (job.started ?? job.created))}`);
  facts.push(`${duration(now - job.created)} ago`);
  return facts.map((fact) => fact.replaceAll(" ", "\u00a0")).join(" · "); // a fact is not broken over two lines
}

/** The name of the file that a download becomes. */
export function fileName(job, blob, index = 0) {
  const endings = { "video/mp4": "mp4", "image/png": "png", "image/webp": "webp", "image/jpeg": "jpg" };
  const ending = endings[blob.type.split(";")[0]] ?? (job.kind === "clip" ? "mp4" : "png");
  const words = job.prompt.toLowerCase().match(/[a-z0-9]+/g) ?? [];
  return `${words.slice(0, 6).join("-") || job.kind}-${job.id.slice(-6)}${job.count > 1 ? `-${index + 1}` : ""}.${ending}`;
}

/** An error of the gallery as a `Problem`. */
export function mediaProblem(error) {
  if (error instanceof Problem) return error;
  if (!(error instanceof ApiError))
    return new Problem("fault", "Something in the gallery went wrong.", `${error.message} Reload the page.`);
  if (error.status === 401 || error.status === 403)
    return new Problem("key", "The server wants a good API key.", "Put one of its keys (server.api_keys) into the field “API key”.");
  if (error.status === 0)
    return new Problem("unreachable", "The server does not answer.", "Jobs that it has taken are kept, and go on when it is back.");
  if (error.status === 503)
    return new Problem("starting", "The server is not ready yet.", "It is starting, stopping, or an engine is down.");
  if (error.status === 429) return new Problem("busy", "The server takes no more jobs from here for the moment.", error.message);
  return new Problem(error.code || "refused", "The server refused.", error.message);
}
