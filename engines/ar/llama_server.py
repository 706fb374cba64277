"""llama.cpp's own server in this process (`xllamacpp`), as asyncio sees it: payloads in, events out, an abort at the next token.

Each running request has a thread that sits in llama.cpp's code and is called back after every batch of the prompt and at every
token; returning True from the callback ends the request there and then, which is how a closed stream frees its slot.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from ..errors import EngineError, EngineUnavailableError, InvalidRequestError

_REUSE = 32
"""Runs of at least so many tokens are moved in the cache, not computed anew, when older messages before them are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """See `llama.LlamaOptions`."""

    model: Path
    context: int
    slots: int
    threads: int
    batch: int
    cache_mb: int
    gpu_layers: int
    abort_seconds: float


class _Call:
    """One request on its way through llama.cpp: a thread that computes, a queue to the event loop, and a flag to stop.

    Bound of the queue: the request's `max_tokens` (and a few events of prompt progress); the reader need not keep up.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_end: Callable[[_Call], None]) -> None:
        self._loop = loop
        self._on_end = on_end
        self.events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.stopped = threading.Event()
        self.done = asyncio.Event()

    def on_event(self, event: Any) -> bool:
        """In the request's thread: hand the event over; True tells llama.cpp to stop."""
        if self.stopped.is_set():
            return True
        for part in event if isinstance(event, list) else [event]:
            self._post(part)
        return False

    def run(self, server: Any, payload: dict[str, Any]) -> None:
        """In the request's thread: the whole request."""
        try:
            if not self.stopped.is_set():
                server.handle_chat_completions(payload, self.on_event)
        except Exception as error:
            self._post({"error": {"code": 500, "message": f"{type(error).__name__}: {error}"}})
        finally:
            self._post(None)
            with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._on_end(self)
        self.done.set()

    def _post(self, event: dict[str, Any] | None) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.events.put_nowait, event)


class LlamaServer:
    """A loaded model with slots. `open` it once, `complete` payloads, `close` it once."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.native_tools = False
        """Does the model's own template know function calls?"""
        self.last_step: float | None = None
        self.waiting = 0
        self._server: Any = None
        self._threads: ThreadPoolExecutor | None = None
        self._slots = asyncio.Semaphore(options.slots)
        self._calls: set[_Call] = set()

    @property
    def is_open(self) -> bool:
        return self._server is not None

    @property
    def running(self) -> int:
        return len(self._calls)

    async def open(self) -> None:
        """Load the model, in a thread. Raises `EngineUnavailableError`. Harmless when it is open."""
        if self._server is not None:
            return
        if not self.options.model.is_file():
            raise EngineUnavailableError(f"there is no model file {self.options.model}", code="weights_missing")
        threads = ThreadPoolExecutor(max_workers=self.options.slots, thread_name_prefix="antiphon-llama")
        loop = asyncio.get_running_loop()
        try:
            self._server, self.native_tools = await loop.run_in_executor(threads, self._load)
        except (RuntimeError, ValueError, OSError, httpx.HTTPError) as error:
            threads.shutdown(wait=False)
            raise EngineUnavailableError(f"llama.cpp could not load {self.options.model}: {error}") from error
        self._threads = threads

    def _load(self) -> tuple[Any, bool]:
        """The server, and whether the model's own template knows function calls."""
        import xllamacpp

        options = self.options
        params = xllamacpp.CommonParams()
        params.model.path = str(options.model)
        params.n_ctx = options.context * options.slots
        params.n_parallel = options.slots
        params.n_batch = params.n_ubatch = options.batch
        params.n_gpu_layers = options.gpu_layers
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
        if options.gpu_layers == 0:
            # On a CPU the fused attention is the slower one, the more so the longer the conversation (measured at 1,000 tokens: 22 ms a
            # token against 16).
            params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.cache_ram_mib = options.cache_mb
        params.n_cache_reuse = _REUSE
        params.use_jinja = True
        params.fit_params = False
        params.verbosity = 1
        # llama.cpp opens its HTTP server on a loopback port whether or not one wants it: nobody else gets in.
        key = secrets.token_urlsafe(32)
        params.api_keys = [key]
        params.ui = False
        params.endpoint_slots = False
        params.n_threads_http = 2
        server = xllamacpp.Server(params)
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=server.listening_address, headers=headers, trust_env=False, timeout=10) as client:
            properties = client.get("/props").raise_for_status().json()
        return server, bool(properties.get("chat_template_caps", {}).get("supports_tools"))

    async def close(self) -> None:
        """Abort what runs, then free the model in a thread."""
        server, self._server = self._server, None
        for call in tuple(self._calls):
            call.stopped.set()
        waits = [asyncio.ensure_future(call.done.wait()) for call in self._calls]
        if waits:
            _, pending = await asyncio.wait(waits, timeout=self.options.abort_seconds)
            for wait in pending:
                wait.cancel()
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)
        if server is not None:
            holder = [server]
            del server
            await asyncio.to_thread(holder.clear)

    async def complete(self, payload: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Run a payload and yield its events; closing stops it at the next token and waits until its slot is free."""
        self.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.waiting -= 1
        server, threads = self._server, self._threads
        if server is None or threads is None:
            self._slots.release()
            raise EngineUnavailableError("the chat model is not open")
        call = _Call(asyncio.get_running_loop(), self._end)
        self._calls.add(call)
        threads.submit(call.run, server, payload)
        del server
        try:
            while (event := await call.events.get()) is not None:
                self.last_step = time.monotonic()
                if "error" in event:
                    raise _error(event["error"])
                yield event
        finally:
            call.stopped.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.options.abort_seconds):
                    await call.done.wait()

    def _end(self, call: _Call) -> None:
        """The request's thread has left llama.cpp: only now is its slot free."""
        self._calls.discard(call)
        self._slots.release()


class TooLongError(Exception):
    """The conversation does not fit into the context."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(f"{tokens} tokens > {limit}")
        self.tokens = max(1, tokens)
        self.limit = limit


def _error(error: dict[str, Any]) -> Exception:
    """llama.cpp's error object as an exception."""
    message, code = str(error.get("message", "unknown error")), error.get("code", 500)
    if error.get("type") == "exceed_context_size_error":
        return TooLongError(int(error.get("n_prompt_tokens", 0)), int(error.get("n_ctx", 0)))
    if code == 503:
        return EngineUnavailableError(f"llama.cpp: {message}")
    if 400 <= code < 500:
        return InvalidRequestError(f"llama.cpp refused the request: {message}")
    return EngineError(f"llama.cpp failed: {message}")
