// The server's HTTP routes.

import { apiKey } from "./preferences.js";

/** An HTTP request that failed. `status` 0: the server could not be reached; `retryAfter` in seconds or null. */
export class ApiError extends Error {
  constructor(status, code, message, retryAfter = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

/** Ask the server; returns the `Response` when it is good (or its status is in `accept`), else throws an `ApiError`. */
export async function request(path, { method = "GET", body, headers = {}, timeout = 8000, accept = [], signal } = {}) {
  const key = apiKey.get();
  const limit = AbortSignal.timeout(timeout);
  let response;
  try {
    response = await fetch(path, {
      method,
      body,
      headers: key ? { authorization: `Bearer ${key}`, ...headers } : headers,
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
      cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, limit.aborted ? "timeout" : "unreachable", "The server does not answer.");
  }
  if (response.ok || accept.includes(response.status)) return response;
  throw await failure(response);
}

/** The same, read as JSON. */
export async function json(path, options) {
  return (await request(path, options)).json();
}

async function failure(response) {
  const retryAfter = Number(response.headers.get("retry-after")) || null;
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // not JSON: the status says enough
  }
  const message = typeof error.message === "string" ? error.message : `The server answered with status ${response.status}.`;
  return new ApiError(response.status, error.code ?? "", message, retryAfter);
}

/** The models of this server, `[]` when it has none to show. Throws `ApiError`. */
export async function models() {
  return (await json("/v1/models")).data ?? [];
}

/** The turns of a session as the server timed them; null when it does not tell. */
export async function sessionReport(sessionId) {
  try {
    return await json(`/v1/realtime/sessions/${encodeURIComponent(sessionId)}`);
  } catch (error) {
    if (error instanceof ApiError) return null;
    throw error;
  }
}

/** Why the server refuses a connection: the browser hides the answer to a WebSocket handshake, so the other routes are asked. */
export async function whyRefused() {
  try {
    await request("/v1/models");
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  const ready = await fetch("/readyz", { cache: "no-store" }).catch(() => null);
  if (ready?.status === 503) {
    const { reason } = await ready.json().catch(() => ({}));
    return new ApiError(503, `server_${reason ?? "busy"}`, "", Number(ready.headers.get("retry-after")) || null);
  }
  const load = figures(await (await fetch("/metrics", { cache: "no-store" })).text().catch(() => ""));
  if (load.capacity > 0 && load.sessions >= load.capacity) return new ApiError(429, "rate_limit_exceeded", "", 5);
  return null;
}

/** The few figures of `/metrics` that the console needs. */
export function figures(text) {
  const sum = (name) =>
    [...text.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? ([0-9.e+-]+)$`, "gm"))].reduce((total, found) => total + Number(found[1]), 0);
  return {
    sessions: sum("antiphon_sessions"),
    waiting: sum("antiphon_sessions_waiting"),
    capacity: sum("antiphon_session_capacity"),
  };
}
