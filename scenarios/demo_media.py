"""The demo's second act: a picture and a clip are ordered, printed as they are drawn, and left as files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from rich.text import Text

from ..clients.media import Job, MediaClient
from .acts import Act
from .animation import gif_of
from .media_server import engine_figures, write_configuration
from .report import plain
from .server import Server
from .voice import Setting

PICTURE = "a large red circle above a small blue square on a white background"
CLIP = "a large green star moving right on a black background"
SEED = 4
WITHIN_S = 300.0
TOLD_EVERY = 25
"""Percent of progress."""
FRESH_S = 1.1
"""The server reads its engines' counters at most once a second."""


@dataclass(slots=True)
class Made:
    """A job that was done, as the client saw it."""

    job: Job
    seconds: float
    data: bytes
    engine: Mapping[str, float]
    """What the engine did meanwhile."""

    @property
    def steps_per_second(self) -> float | None:
        """Denoising steps over the time that the engine computed them."""
        steps, seconds = self.engine.get("steps", 0.0), self.engine.get("step_seconds", 0.0)
        return steps / seconds if seconds else None


async def run(setting: Setting) -> Act:
    """Have them made. Raises `MediaFailed`, `ServerFailed`."""
    setting.out.mkdir(parents=True, exist_ok=True)
    act = Act()
    async with _server(setting) as server, MediaClient(server.url, api_key=setting.api_key) as media:
        picture = await _make(setting, server, media, "picture", PICTURE)
        clip = await _make(setting, server, media, "clip", CLIP)
    files = {"picture.png": picture.data, "clip.mp4": clip.data, "clip.gif": await asyncio.to_thread(gif_of, clip.data)}
    for name, data in files.items():
        (setting.out / name).write_bytes(data)
    for name, made in (("picture", picture), ("clip", clip)):
        note = made.job.get("revised_prompt") or made.job["prompt"]
        rate = made.steps_per_second
        act.figures.append(plain(f"{name}, from order to file", made.seconds, "s", digits=2, note=note))
        act.figures.append(plain(f"denoising steps a second, {name}", rate, digits=1, note=f"{made.job.get('steps')} steps"))
        act.details[name] = {"job": made.job, "seconds": round(made.seconds, 3), "engine": dict(made.engine)}
    setting.console.print(Text(f"{', '.join(files)} are in {setting.out}", style="dim"))
    return act


def _server(setting: Setting) -> Server:
    """A server with the media engine; no voices are needed for this act."""
    if setting.url is not None or setting.config is not None:
        return setting.server()
    path = write_configuration(setting.out / "media.toml", setting.out / "jobs", pipelines=("tone",))
    return Server(log=setting.out / "media-server.log", options=("--config", str(path)))


async def _make(setting: Setting, server: Server, media: MediaClient, kind: str, prompt: str) -> Made:
    """Order one, print how it goes, fetch it. Raises `MediaFailed`."""
    console = setting.console
    before = await _engine(server)
    submit = media.submit_picture if kind == "picture" else media.submit_clip
    console.print(Text(f"{kind:>10}  {prompt}"))
    told = 0

    def tell(job: Job) -> None:
        nonlocal told
        if job["status"] == "in_progress" and job["progress"] >= told + TOLD_EVERY:
            told = job["progress"]
            console.print(Text(f"{'':>10}  {told} %", style="dim"))

    began = time.monotonic()
    job = await media.follow(await submit(prompt, seed=SEED), within=WITHIN_S, on_change=tell)
    data = await media.content(job)
    seconds = time.monotonic() - began
    drawn = f", drawn as: {job['revised_prompt']}" if job.get("revised_prompt") else ""
    console.print(Text(f"{'':>10}  done in {seconds:.1f} s{drawn}", style="green"))
    for warning in job.get("warnings") or ():
        console.print(Text(f"{'':>10}  {warning}", style="yellow"))
    after = await _engine(server)
    await media.delete(job)
    return Made(job, seconds, data, {name: value - before.get(name, 0.0) for name, value in after.items()})


async def _engine(server: Server) -> dict[str, float]:
    """The engine's counters as they are now."""
    await asyncio.sleep(FRESH_S)
    return engine_figures(str(await server.get("/metrics")))
