"""A client for pictures and clips: submits jobs, follows them, fetches what was made.

It speaks the shapes of `/v1/videos` and `/v1/images` and treats both alike, as jobs; a busy or restarting server is asked again, and no
submission is doubled by that, because each carries an idempotency key.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from .errors import CallFailed

RETRIED = frozenset({429, 502, 503, 504})
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
POLL_S = 1.0
"""Between two looks at a job, unless the server says how long."""

CLIPS, PICTURES = "/v1/videos", "/v1/images"

Job = dict[str, Any]
"""A `video` or `image.job` object of the API."""


class MediaFailed(CallFailed):
    """The server refused, or the job failed; the message is the server's own. `code` is stable and for programs."""

    def __init__(self, message: str, code: str = "", status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class MediaClient:
    """Use as `async with MediaClient(url) as media`. `patience` is how long, in seconds, a server that is busy or away is asked again."""

    def __init__(self, url: str, *, api_key: str | None = None, patience: float = 60.0, timeout: float = 30.0) -> None:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout, trust_env=False)
        self._patience = patience

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._http.aclose()

    async def submit_clip(self, prompt: str, **settings: Any) -> Job:
        """Ask for a clip: `model`, `seconds`, `size`, `seed`, `num_inference_steps`, … as in `POST /v1/videos`. Raises `MediaFailed`."""
        return await self._submit(CLIPS, {"prompt": prompt, **settings})

    async def submit_picture(self, prompt: str, **settings: Any) -> Job:
        """Ask for a picture, as in `POST /v1/images/generations`, and do not wait for it. Raises `MediaFailed`."""
        return await self._submit(f"{PICTURES}/generations", {"prompt": prompt, **settings})

    async def look(self, job: Job) -> Job:
        """The job as it is now. Raises `MediaFailed`."""
        return _object(await self._ask("GET", _path(job)))

    async def follow(self, job: Job, *, within: float, on_change: Callable[[Job], None] | None = None) -> Job:
        """Look at a job until it has ended, as often as the server suggests. `on_change` is called with each new state or progress.

        Raises `MediaFailed` when the job failed, or did not end within so many seconds.
        """
        deadline, last = time.monotonic() + within, None
        while True:
            answer = await self._ask("GET", _path(job))
            job = _object(answer)
            if (job["status"], job["progress"]) != last and on_change is not None:
                on_change(job)
            last = (job["status"], job["progress"])
            if job["status"] == "completed":
                return job
            if job["status"] == "failed":
                error = job.get("error") or {}
                raise MediaFailed(error.get("message") or "The server does not say why the job failed.", error.get("code") or "failed")
            if time.monotonic() > deadline:
                raise MediaFailed(f"The job was not done within {within:g} s: {job['status']}, {job['progress']} %.", "timeout")
            await asyncio.sleep(_pause(answer))

    async def content(self, job: Job, **which: str | int) -> bytes:
        """A file of a completed job: `variant="thumbnail"` or `"spritesheet"` of a clip, `index=1` of several pictures.

        Raises `MediaFailed`.
        """
        return (await self._ask("GET", f"{_path(job)}/content", params=which)).content

    async def delete(self, job: Job) -> None:
        """Cancel it if it is still being made, and remove it. Raises `MediaFailed`."""
        await self._ask("DELETE", _path(job))

    async def clips(self, *, limit: int = 100, after: str | None = None) -> list[Job]:
        """A page of clips, the newest first. Raises `MediaFailed`."""
        return await self._list(CLIPS, limit, after)

    async def pictures(self, *, limit: int = 100, after: str | None = None) -> list[Job]:
        """A page of jobs of pictures, the newest first. Raises `MediaFailed`."""
        return await self._list(PICTURES, limit, after)

    # ---- inside ----

    async def _submit(self, path: str, body: Mapping[str, Any]) -> Job:
        headers = {"idempotency-key": uuid.uuid4().hex, "prefer": "respond-async"}
        chosen = {name: value for name, value in body.items() if value is not None}
        return _object(await self._ask("POST", path, json=chosen, headers=headers))

    async def _list(self, path: str, limit: int, after: str | None) -> list[Job]:
        params = {"limit": str(limit), "order": "desc", **({"after": after} if after else {})}
        data: list[Job] = _object(await self._ask("GET", path, params=params))["data"]
        return data

    async def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Ask, and ask again while the server is busy or away. Raises `MediaFailed`."""
        deadline, pause = time.monotonic() + self._patience, FIRST_PAUSE_S
        while True:
            wait = pause
            try:
                answer = await self._http.request(method, path, **options)
                if answer.is_success:
                    return answer
                failure = _refusal(answer)
                if answer.status_code not in RETRIED:
                    raise failure
                wait = _seconds(answer.headers.get("retry-after")) or pause
            except httpx.TransportError as error:
                failure = MediaFailed(f"The server does not answer: {error or type(error).__name__}.", "unreachable")
            if time.monotonic() + wait > deadline:
                raise failure
            await asyncio.sleep(wait)
            pause = min(LONGEST_PAUSE_S, pause * 2)


def _path(job: Job) -> str:
    return f"{CLIPS if job['object'] == 'video' else PICTURES}/{job['id']}"


def _object(answer: httpx.Response) -> Job:
    body = answer.json()
    if not isinstance(body, dict):
        raise MediaFailed(f"The server's answer to {answer.request.url.path} is no JSON object.", "bad_answer", answer.status_code)
    return body


def _refusal(answer: httpx.Response) -> MediaFailed:
    try:
        error = answer.json()["error"]
        return MediaFailed(str(error["message"]), str(error.get("code") or ""), answer.status_code)
    except (ValueError, KeyError, TypeError):
        return MediaFailed(f"The server answered with status {answer.status_code}.", "", answer.status_code)


def _pause(answer: httpx.Response) -> float:
    told = _seconds(answer.headers.get("openai-poll-after-ms"))
    return told / 1000 if told else POLL_S


def _seconds(text: str | None) -> float | None:
    """The number in a header; None for none (or a date, which nobody here sends)."""
    try:
        return max(0.0, float(text)) if text is not None else None
    except ValueError:
        return None
