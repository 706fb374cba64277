// The routes that make pictures and clips, as the gallery sees them: two kinds of job of one shape.
//
//   {id, kind, status, ended, progress, created, started, completed, prompt, revised, warnings: [text], error: {code, message} | null,
//    model, size, seconds, steps, seed, from, count, paths: [of its files], thumbnail, previewPath}
//
// Times are seconds since the epoch, `progress` is 0 to 100; what the server does not tell is null or "".

import { json, models, request } from "../api.js";

const SUBMIT_MS = 20_000;
const LIST_MS = 10_000;
const SECONDS = [1, 2, 4, 8, 12];
const USUAL_S = 4; // what a clip lasts when nobody says how long
const FEWEST_FPS = 2; // a clip that would show fewer is not offered

/**
 * The models that make something: `{id, pictures, clips, sizes: {picture, clip}, seconds, usualSeconds, examples}`. Throws `ApiError`.
 */
export async function mediaModels() {
  return (await models()).filter(({ media }) => media).map(({ id, media }) => ({
    id,
    pictures: media.pictures,
    clips: media.clips,
    sizes: { picture: media.picture_sizes, clip: media.clip_sizes },
    seconds: media.clips ? lengths(media).map(String) : [],
    usualSeconds: String(Math.min(USUAL_S, media.full_rate_seconds)),
    examples: media.examples ?? [],
  }));
}

/** What a clip of this model may last: as long as it can at its own rate, or longer with its frames spread out. */
function lengths({ full_rate_seconds: own, max_frames: frames, max_seconds: most }) {
  const usual = SECONDS.filter((seconds) => seconds <= most && frames / seconds >= FEWEST_FPS);
  return [...new Set([...usual, own])].sort((a, b) => a - b);
}

export const clips = {
  kind: "clip",
  list: (where) => page("/v1/videos", where, clip),
  async create(spec, options) {
    if (spec.from) return clip(await post(`${clipPath(spec.from)}/remix`, { prompt: spec.prompt }, options));
    const { prompt, model, size, seconds, seed, steps } = spec;
    return clip(await post("/v1/videos", chosen({ prompt, model, size, seconds, seed, num_inference_steps: steps }), options));
  },
  remove: ({ id }) => gone(clipPath(id)),
};

export const pictures = {
  kind: "picture",
  several: true, // one job makes them all
  list: (where) => page("/v1/images", where, picture),
  async create(spec, options) {
    const { prompt, model, size, seed, steps, number } = spec;
    const body = chosen({ prompt, model, size, seed, num_inference_steps: steps, n: number, partial_images: 3 });
    return picture(await post("/v1/images/generations", body, options));
  },
  remove: ({ id }) => gone(picturePath(id)),
};

const clipPath = (id) => `/v1/videos/${encodeURIComponent(id)}`;
const picturePath = (id) => `/v1/images/${encodeURIComponent(id)}`;

function clip(video) {
  const content = `${clipPath(video.id)}/content`;
  return {
    ...common(video),
    kind: "clip",
    seconds: video.seconds ?? "",
    from: video.remixed_from_video_id ?? "",
    count: 1,
    paths: [content],
    thumbnail: `${content}?variant=thumbnail`,
    previewPath: `${content}?variant=preview`,
  };
}

function picture(image) {
  const content = `${picturePath(image.id)}/content`;
  return {
    ...common(image),
    kind: "picture",
    seconds: "",
    from: "",
    count: image.n,
    paths: Array.from({ length: image.n }, (_, index) => `${content}?index=${index}`),
    thumbnail: "",
    previewPath: `${content}?variant=preview`,
  };
}

function common(job) {
  const status = job.status === "failed" && job.error?.code === "cancelled" ? "cancelled" : job.status;
  return {
    id: job.id,
    status,
    ended: status !== "queued" && status !== "in_progress",
    progress: job.progress ?? 0,
    created: job.created_at,
    started: job.started_at ?? null,
    completed: job.completed_at ?? null,
    prompt: job.prompt ?? "",
    revised: job.revised_prompt ?? "",
    warnings: (job.warnings ?? []).map((warning) => (typeof warning === "string" ? warning : warning.message)),
    error: job.error ?? null,
    model: job.model ?? "",
    size: job.size ?? "",
    steps: job.steps ?? null,
    seed: job.seed ?? null,
  };
}

/** A page of a list: `pollAfter` is how long the server wants us to wait before we look again, in ms or null. */
async function page(path, { after, limit }, read) {
  const query = new URLSearchParams({ limit: String(limit), order: "desc", ...(after ? { after } : {}) });
  const answer = await request(`${path}?${query}`, { timeout: LIST_MS });
  const list = await answer.json();
  const wait = Number(answer.headers.get("openai-poll-after-ms"));
  return { jobs: list.data.map(read), more: list.has_more, pollAfter: wait > 0 ? wait : null };
}

/** Ask for a job to be made, and do not wait for it. */
function post(path, body, { key, signal }) {
  const headers = { "content-type": "application/json", "idempotency-key": key, prefer: "respond-async" };
  return json(path, { method: "POST", body: JSON.stringify(body), headers, signal, timeout: SUBMIT_MS });
}

/** Remove a job; one that is being made stops. */
function gone(path) {
  return request(path, { method: "DELETE", accept: [404] });
}

/** A body without what was not chosen. */
function chosen(values) {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== null && value !== ""));
}
