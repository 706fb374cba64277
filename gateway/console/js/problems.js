// What went wrong, in words that say what to do.

import { ApiError } from "./api.js";

/** A problem to show: `title` says what happened, `advice` what to do; `code` is for programs and tests. */
export class Problem extends Error {
  constructor(code, title, advice) {
    super(title);
    this.code = code;
    this.title = title;
    this.advice = advice;
  }
}

const MICROPHONE = {
  NotAllowedError: [
    "permission",
    "The browser keeps the microphone closed.",
    "Allow the microphone in the address bar's site settings, then connect again. Or talk by text: clear “Use the microphone” under Setup.",
  ],
  NotFoundError: [
    "no-microphone",
    "There is no microphone.",
    "Plug one in and connect again. Or talk by text: clear “Use the microphone” under Setup.",
  ],
  NotReadableError: [
    "microphone-busy",
    "The microphone cannot be opened.",
    "Another program may be using it. Close that program and connect again.",
  ],
  OverconstrainedError: ["no-microphone", "No microphone fits.", "Choose another input device in the system's settings and connect again."],
};

/** From `getUserMedia`'s error. */
export function microphoneProblem(error) {
  if (!window.isSecureContext || !navigator.mediaDevices) {
    return new Problem(
      "insecure",
      "Browsers open the microphone only on https or localhost.",
      `Open this page over https, or through a tunnel as http://localhost. This page came from ${location.origin}.`,
    );
  }
  const [code, title, advice] = MICROPHONE[error.name] ?? [
    "microphone",
    "The microphone cannot be opened.",
    `The browser says: ${error.message}. Check the system's sound settings, then connect again.`,
  ];
  return new Problem(code, title, advice);
}

/** From a refused request (`ApiError`). */
export function refusalProblem(error) {
  const wait = error.retryAfter ? ` in ${error.retryAfter} seconds` : " in a few seconds";
  if (error.status === 401 || error.status === 403) {
    return new Problem(
      "key",
      "The server wants a good API key.",
      "Put one of the server's keys (server.api_keys in its configuration) into Setup and connect again.",
    );
  }
  if (error.status === 429) return new Problem("full", "Every place on this server is taken.", `Try again${wait}.`);
  if (error.status === 503 && error.code === "server_draining") {
    return new Problem(
      "draining",
      "The server is shutting down and takes no new calls.",
      `If it restarts, connect again${wait}. Otherwise ask whoever runs it.`,
    );
  }
  if (error.status === 503)
    return new Problem(
      "starting",
      "The server is not ready yet.",
      `It is starting or an engine is down. Try again${wait}; Operations shows its engines.`,
    );
  if (error.status === 404 && error.code === "model_not_found")
    return new Problem("model", "The server does not know this model.", "Choose another one under Setup.");
  if (error.status === 0)
    return new Problem(
      "unreachable",
      "The server does not answer.",
      "Check that it is running (antiphon serve) and that this machine can reach it, then connect again.",
    );
  return new Problem("refused", "The server refused the call.", error.message);
}

const CLOSES = {
  1012: ["draining", "The server shut down.", "Connect again in a few seconds; the conversation starts anew."],
  1013: [
    "slow",
    "The connection was too slow for live audio.",
    "Check the network, or use WebRTC, which carries compressed audio. Then connect again.",
  ],
  4000: ["evicted", "The call had been idle and its place was needed.", "Connect again to go on talking."],
  4001: ["ended", "An operator ended this call.", "Connect again if you were not meant to leave."],
};

/** From the end of a connection; null when it was an orderly one. `said`: the server's last error event, if it explained itself. */
export function closeProblem({ code, reason }, said) {
  if (said?.code === "session_expired") return new Problem("expired", said.message, "Connect again to go on talking.");
  if (CLOSES[code]) return new Problem(...CLOSES[code]);
  if (code === 1000 || code === 1005) return said ? new Problem("closed", "The server ended the call.", said.message) : null;
  const advice = "Check the network and that the server is running, then connect again.";
  return new Problem("lost", "The connection was lost.", reason ? `${reason} ${advice}` : advice);
}

/** Any error as a problem. */
export function asProblem(error) {
  if (error instanceof Problem) return error;
  if (error instanceof ApiError) return refusalProblem(error);
  return new Problem(
    "fault",
    "Something in the console went wrong.",
    `${error.name}: ${error.message}. Reload the page; the browser's own console has the details.`,
  );
}
