"""Everything one server owns, in one place: settings, engines, sessions, metrics."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client.core import Metric
from starlette.requests import HTTPConnection

from ..engines.gate import GateWriter
from ..engines.interface import WorkClass
from ..engines.orchestrator import Orchestrator
from ..engines.pipeline import Pipeline
from ..engines.pool import EnginePool
from .auth import KeyRing
from .client_secrets import ClientSecrets
from .engine_room import add_media, add_policies, make_engine
from .errors import ApiError
from .jobs.figures import JobFigures
from .live_sessions import LiveSessions
from .logs import logger
from .media.links import Links
from .metrics import Metrics, gauge
from .robots.robots import Robots
from .settings import Settings

if TYPE_CHECKING:
    from .calls import Calls
    from .jobs.service import Jobs

log = logger("gateway")


class Gateway:
    """See the module's docstring. Made with the app, opened and closed once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.keys = KeyRing(settings.server.api_keys, settings.server.cors_origins)
        self.client_secrets = ClientSecrets(settings.server.secret)
        self.links = Links(settings.server.secret)
        """URLs of pictures that open without a key."""
        self.jobs: Jobs | None = None
        """The queue of pictures and clips; None without media engines, and before the gateway is open."""
        self._job_figures = JobFigures()
        self.calls: Calls | None = None
        """The WebRTC calls; None when they are not enabled, and before the gateway is open."""
        self._gate = GateWriter()
        self.pool = EnginePool(gate=self._gate)
        self._orchestrator: Orchestrator | None = None
        self.sessions = LiveSessions(settings.registry, self.metrics)
        self.robots = Robots(settings.robots, pool=self.pool, sessions=self.sessions, metrics=self.metrics)
        self.openpi_url = ""
        """The port for OpenPI clients, once it is open; "": there is none."""
        self.created = int(time.time())
        self.started = False
        self.draining = False
        self.metrics.watch(self._engine_gauges)
        self.metrics.watch(self._job_figures.read)

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
        self.jobs = await self._take_jobs()
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
        await self.robots.close()
        if self.jobs is not None:
            await self.jobs.close()
        await self.pool.close()
        self._gate.close()

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

    async def refresh_figures(self) -> None:
        """Read what the metrics say of jobs and diffusion engines anew."""
        if self.jobs is not None:
            await self._job_figures.refresh(self.jobs.store, self.pool, self.jobs.lanes)

    async def _take_jobs(self) -> Jobs | None:
        """Open the job queue; None when there is nothing that could work on it. Raises `SettingsError`."""
        lanes = [name for name in self.settings.server.media if name in self.pool]
        if not lanes:
            log.info("no image and video jobs", mend="name a diffusion engine in server.media, and pip install 'antiphon[media]'")
            return None
        missing = [package for package in ("sqlalchemy", "aiosqlite", "obstore") if importlib.util.find_spec(package) is None]
        if missing:
            log.warning("no image and video jobs: packages are missing", missing=missing, mend=f"pip install {' '.join(missing)}")
            return None
        from .jobs.service import open_jobs

        try:
            return await open_jobs(self.settings.jobs, self.pool, lanes, self.metrics)
        except BaseException:
            await self.pool.close()
            raise

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
                    self.pool.add(engine, make_engine(self.settings, engine))
            pipelines.append(Pipeline.voice(name, **{role.value: engine for role, engine in engines.items()}))
        self._orchestrator = Orchestrator(self.pool, pipelines)
        add_media(self.pool, self.settings)
        add_policies(self.pool, self.settings)

    def _engine_gauges(self) -> Iterable[Metric]:
        running: list[tuple[dict[str, str], float]] = []
        waiting: list[tuple[dict[str, str], float]] = []
        for engine in self.pool.snapshot():
            busy = [(kind, sum(replica.running[kind] for replica in engine.replicas)) for kind in WorkClass]
            running.extend(({"engine": engine.name, "class": kind.name.lower()}, count) for kind, count in busy)
            waiting.extend(({"engine": engine.name, "class": kind.name.lower()}, count) for kind, count in engine.waiting.items())
        yield gauge("antiphon_engine_running", "Requests that an engine works on", running)
        yield gauge("antiphon_engine_waiting", "Requests that wait for a slot of an engine", waiting)
