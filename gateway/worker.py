"""A process that only works: it takes jobs from the queue that servers fill, with engines of its own, and tells of their ends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import asdict

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ..engines.pool import EnginePool
from .engine_room import add_media
from .errors import SettingsError
from .jobs.figures import JobFigures
from .jobs.service import Jobs, open_jobs
from .logs import logger
from .metrics import Metrics
from .server import UvicornServer, base_url, listen, loop_factory, stop_on_signals
from .settings import Settings

log = logger("gateway.worker")


class Worker:
    """See the module's docstring. `settings.jobs.work` must be true."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.pool = EnginePool()
        self.jobs: Jobs | None = None
        self._figures = JobFigures()
        self.metrics.watch(self._figures.read)

    async def open(self) -> None:
        """Load the engines and begin. Raises `EngineError`, `SettingsError`."""
        await asyncio.to_thread(add_media, self.pool, self.settings)
        lanes = [name for name in self.settings.server.media if name in self.pool]
        if not lanes:
            raise SettingsError("There is no engine to work with: name one in server.media, and pip install 'antiphon[media]'.")
        await self.pool.open()
        try:
            self.jobs = await open_jobs(self.settings.jobs, self.pool, lanes, self.metrics)
        except BaseException:
            await self.pool.close()
            raise
        log.info("working", engines=lanes)

    async def close(self) -> None:
        """Give the jobs back and free everything, in bounded time."""
        if self.jobs is not None:
            await self.jobs.close()
        await self.pool.close()

    # ---- for the operator -------------------------------------------------------------------------------------------

    def app(self) -> Starlette:
        """`/livez`, `/health` and `/metrics`, as the server has them."""
        routes = [Route("/livez", self._livez), Route("/health", self._health), Route("/metrics", self._metrics)]
        return Starlette(routes=routes)

    async def _livez(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _health(self, _: Request) -> Response:
        engines = {name: asdict(state) for name, state in (await self.pool.health()).items()}
        well = all(state["ok"] for state in engines.values())
        return JSONResponse({"status": "ok" if well else "degraded", "engines": engines}, 200 if well else 503)

    async def _metrics(self, _: Request) -> Response:
        if self.jobs is not None:
            await self._figures.refresh(self.jobs.store, self.pool, self.jobs.lanes)
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def work(settings: Settings, *, port: int | None, announce: Callable[[str], None]) -> None:
    """Work until told to stop. `announce` is given one line when it begins. Raises `SettingsError` or `EngineError`."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_work(settings, port, announce))


async def _work(settings: Settings, port: int | None, announce: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    worker = Worker(settings)
    sock = listen(settings.server.host, port) if port is not None else None
    serving: asyncio.Task[None] | None = None
    with stop_on_signals(stop):
        try:
            await worker.open()
            where = ""
            if sock is not None:
                server = UvicornServer(uvicorn.Config(worker.app(), log_config=None, access_log=False, server_header=False, lifespan="off"))
                serving = asyncio.create_task(server.serve(sockets=[sock]), name="uvicorn")
                where = f", metrics on {base_url(sock)}/metrics"
            assert worker.jobs is not None
            announce(f"antiphon worker {os.getpid()} works with {', '.join(worker.jobs.lanes)}{where}")
            await stop.wait()
            if serving is not None:
                server.should_exit = True
                await serving
        finally:
            await worker.close()
            if sock is not None:
                sock.close()
    log.info("stopped")
