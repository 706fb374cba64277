"""Everything one server owns, in one place: settings, engines, sessions, metrics."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from prometheus_client.core import Metric
from starlette.requests import HTTPConnection

from ..engines.interface import Role
from ..engines.orchestrator import Orchestrator
from ..engines.pipeline import Pipeline
from ..engines.pool import EnginePool
from ..engines.registry import build_engine, kinds
from .auth import KeyRing
from .client_secrets import ClientSecrets
from .errors import ApiError
from .live_sessions import LiveSessions
from .logs import logger
from .metrics import Metrics, gauge
from .settings import Settings

if TYPE_CHECKING:
    from .calls import Calls

log = logger("gateway")

BUDGETED = frozenset({"silero", "smart-turn", "whisper", "llama", "hibari", "kokoro"})
"""Engine kinds that compute in this process and take a `threads` option."""


class Gateway:
    """See the module's docstring. Made with the app, opened and closed once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.keys = KeyRing(settings.server.api_keys, settings.server.cors_origins)
        self.client_secrets = ClientSecrets(settings.server.secret)
        self.calls: Calls | None = None
        """The WebRTC calls; None when they are not enabled, and before the gateway is open."""
        self.pool = EnginePool()
        self._orchestrator: Orchestrator | None = None
        self.sessions = LiveSessions(settings.registry, self.metrics)
        self.created = int(time.time())
        self.started = False
        self.draining = False
        self.metrics.watch(self._engine_gauges)

    @staticmethod
    def of(connection: HTTPConnection) -> Gateway:
        """The gateway that serves this request."""
        gateway = connection.app.state.gateway
        assert isinstance(gateway, Gateway)
        return gateway

    @property
    def orchestrator(self) -> Orchestrator:
        """Runs the served pipelines; there once the gateway is open."""
        assert self._orchestrator is not None, "the gateway is not open"
        return self._orchestrator

    async def open(self) -> None:
        """Load the engines of the served pipelines. Raises `EngineError`."""
        began = time.monotonic()
        await asyncio.to_thread(self._build)
        await self.pool.open()
        self.sessions.open()
        if self.settings.webrtc.enabled:
            self.calls = self._take_calls()
        self.started = True
        log.info("engines ready", engines=self.pool.names(), seconds=round(time.monotonic() - began, 2))

    async def close(self) -> None:
        """Free everything, in bounded time."""
        self.started = False
        if self.calls is not None:
            await self.calls.close()
        await self.sessions.close()
        await self.pool.close()

    def model_names(self) -> list[str]:
        """The names that lead to a served pipeline without the fallback."""
        served = self.settings.server.pipelines
        return [*served, *(alias for alias, name in self.settings.models.aliases.items() if name in served and alias not in served)]

    def pipeline_for(self, model: str) -> str:
        """The name of the pipeline for a model. Raises a 404 `ApiError` when nothing answers to it."""
        name = self.settings.pipeline_for(model)
        if name is None:
            known = ", ".join(self.model_names())
            raise ApiError(404, "model_not_found", f"The model '{model}' does not exist. There are: {known}.", param="model")
        return name

    def voices(self, pipeline: str) -> tuple[str, ...]:
        """The voices of a pipeline's speech engine, its own first."""
        engine = self.settings.pipelines[pipeline].speech
        return self.pool.engine(engine).capabilities.voices if engine is not None else ()

    def require_open(self) -> None:
        """Raise a 503 `ApiError` unless new work is taken."""
        if self.draining:
            raise ApiError(503, "server_draining", "The server stops for maintenance. Try again soon.", headers={"retry-after": "5"})
        if not self.started:
            raise ApiError(503, "server_starting", "The server is starting.", headers={"retry-after": "1"})

    def _take_calls(self) -> Calls | None:
        """Open the UDP port; None without the packages of the `webrtc` extra. Raises `SettingsError`."""
        if importlib.util.find_spec("aiortc") is None:
            log.warning("no WebRTC calls: the package aiortc is missing", mend="pip install 'antiphon[webrtc]'")
            return None
        from .calls import Calls  # aiortc takes most of a second to import

        calls = Calls(
            self.settings,
            limits=self.settings.webrtc_limits(),
            metrics=self.metrics,
            sessions=self.sessions,
            orchestrator=self.orchestrator,
            voices=self.voices,
        )
        calls.open()
        return calls

    def _build(self) -> None:
        """Make the engines (their weights are found and hashed here, off the event loop) and the pipelines."""
        pipelines: list[Pipeline] = []
        for name in self.settings.server.pipelines:
            engines = self.settings.pipelines[name].engines()
            for engine in engines.values():
                if engine not in self.pool:
                    table = self.settings.engines[engine]
                    self.pool.add(engine, build_engine(table.kind, engine, self._options(table.kind, table.options)))
            pipelines.append(Pipeline.voice(name, **{role.value: engine for role, engine in engines.items()}))
        self._orchestrator = Orchestrator(self.pool, pipelines)

    def _options(self, kind: str, options: dict[str, Any]) -> dict[str, Any]:
        """An engine's options with its share of the CPU threads."""
        role: Role | None = kinds().get(kind)
        if kind not in BUDGETED or role is None or "threads" in options:
            return options
        return {**options, "threads": getattr(self.settings.threads.budget(), role.value)}

    def _engine_gauges(self) -> Iterable[Metric]:
        running: list[tuple[dict[str, str], float]] = []
        waiting: list[tuple[dict[str, str], float]] = []
        for engine in self.pool.snapshot():
            running.append(({"engine": engine.name}, sum(sum(replica.running.values()) for replica in engine.replicas)))
            waiting.extend(({"engine": engine.name, "class": kind.name.lower()}, count) for kind, count in engine.waiting.items())
        yield gauge("antiphon_engine_running", "Requests that an engine works on", running)
        yield gauge("antiphon_engine_waiting", "Requests that wait for a slot of an engine", waiting)
