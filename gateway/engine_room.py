"""From the configuration's engine tables to engines in a pool, each in its process, with its share of the CPU."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from ..engines.errors import EngineUnavailableError
from ..engines.interface import Capabilities, Engine, EngineHealth, EngineRequest, Role
from ..engines.launchers import launch
from ..engines.messages import EngineChunk
from ..engines.pool import EnginePool
from ..engines.registry import kinds, missing_packages
from .errors import SettingsError
from .logs import logger
from .settings import EngineSettings, Settings

log = logger("engines")

BUDGETED = frozenset({"silero", "smart-turn", "whisper", "llama", "hibari", "kokoro"})
"""Engine kinds that take a `threads` option from the budget."""

INSTALLS = {
    "openpi-policy": "pip install 'antiphon[openpi]'",
    "lerobot-policy": "an environment of its own with 'antiphon[lerobot]', named by the engine's `python`",
}
"""What makes up for packages that a kind of policy lacks, where the extra `robot` does not."""


class DescribedEngine:
    """An engine that works elsewhere (in `antiphon worker`): here it only says what it can do. Most know that only once they have loaded
    their weights, so it is opened and closed again."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.capabilities: Capabilities = engine.capabilities

    async def open(self) -> None:
        """Ask it. Raises `EngineError`."""
        await self._engine.open()
        self.capabilities = self._engine.capabilities
        await self._engine.close()

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        """Raises `EngineUnavailableError`."""
        raise EngineUnavailableError("this server only takes jobs (jobs.work is false); 'antiphon worker' processes do the work")
        yield  # an asynchronous generator

    async def health(self) -> EngineHealth:
        return EngineHealth(ok=True, detail="works elsewhere")

    async def close(self) -> None:
        """It is closed already, unless opening it was interrupted."""
        await self._engine.close()


def make_engine(settings: Settings, name: str) -> Engine:
    """The engine that `[engines.NAME]` describes, not opened (weights are found and hashed here: call it off the event loop).

    Raises `EngineError`."""
    table = settings.engines[name]
    options = _options(settings, table)
    if table.process or table.python:
        return launch(table.kind, name, options, "subprocess", python=table.python, nice=table.nice)
    return launch(table.kind, name, options)


def add_media(pool: EnginePool, settings: Settings) -> None:
    """Put the diffusion engines of `server.media` into the pool, with `jobs.work` false only their descriptions. One whose packages are
    missing is left out, with a warning in the log.

    Raises `EngineError`, and `SettingsError` for an engine that makes no pictures.
    """
    for name in settings.server.media:
        table = settings.engines[name]
        if (role := kinds().get(table.kind)) is not None and role is not Role.DIFFUSION:
            raise SettingsError(f"server.media names {name!r}, but engines of kind {table.kind!r} make no pictures.")
        missing = () if table.python else missing_packages(table.kind)
        if missing:
            log.warning("no pictures and clips", engine=name, missing=", ".join(missing), mend="pip install 'antiphon[media]'")
        elif name not in pool:
            engine = make_engine(settings, name)
            # Loading torch takes seconds, which calls need not wait for.
            pool.add(name, engine if settings.jobs.work else DescribedEngine(engine), reserved=0, background=True)


def add_policies(pool: EnginePool, settings: Settings) -> None:
    """Put the action engines of `robots.policies` into the pool. One whose packages are missing is left out, with a warning in the log.
    Those that the operator named are open when the server is; those that it just comes with are opened for the first robot that asks.

    Raises `EngineError`, and `SettingsError` for an engine that is no robot's policy.
    """
    for name in settings.robots.policies:
        table = settings.engines[name]
        if (role := kinds().get(table.kind)) is not None and role is not Role.ACTION:
            raise SettingsError(f"robots.policies names {name!r}, an engine for {role.value} and no robot policy.")
        missing = () if table.python else missing_packages(table.kind)
        if missing:
            mend = INSTALLS.get(table.kind, "pip install 'antiphon[robot]'")
            log.warning("a robots' policy is not served", engine=name, missing=", ".join(missing), mend=mend)
        elif name not in pool:
            pool.add(name, make_engine(settings, name), on_demand="policies" not in settings.robots.model_fields_set)


def _options(settings: Settings, table: EngineSettings) -> dict[str, Any]:
    """An engine's options with its share of the CPU threads."""
    role: Role | None = kinds().get(table.kind)
    if table.kind not in BUDGETED or role is None or "threads" in table.options:
        return table.options
    return {**table.options, "threads": getattr(settings.threads.budget(), role.value)}
