"""A storm of jobs: so many clips and pictures at once, and again when all are made, until somebody has seen enough."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..clients.media import Job, MediaClient, MediaFailed

COLOURS = ("red", "green", "blue", "yellow", "orange", "purple", "pink", "cyan")
SHAPES = ("circle", "square", "triangle", "diamond", "star", "cross", "ring", "heart")
MOTIONS = ("moving left", "moving right", "moving up", "moving down", "growing", "shrinking")
LOOK_S = 0.5
FIRST_WAVE_S = 1800.0
"""No first wave may take longer."""
LAST_ORDERS_S = 30.0
"""At the end: how long orders that went out are waited for, so that they can be deleted."""


@dataclass(slots=True)
class Made:
    """A job of the storm. Times on `time.monotonic`; `ended` None: it was not seen to end."""

    kind: str
    wave: int
    submitted: float
    ended: float | None = None
    failure: str = ""

    @property
    def seconds(self) -> float | None:
        """From its submission to its end."""
        return None if self.ended is None else self.ended - self.submitted


class Storm:
    """Submits waves of jobs until `stop` is called; the first wave is always made to its end. Give `run` a task of its own."""

    def __init__(self, media: MediaClient, *, clips: int, pictures: int, seconds: str | None, model: str, seed: int = 3) -> None:
        self.jobs: list[Made] = []
        self.began: float | None = None
        self.ended: float | None = None
        self.waves = 0
        self.lost: list[str] = []
        """What went wrong beside the jobs themselves."""
        self._media = media
        self._clips, self._pictures = clips, pictures
        self._seconds = seconds
        self._model = model
        self._random = random.Random(seed)
        self._stopping = asyncio.Event()
        self.raging = asyncio.Event()
        """Set once the whole first wave is submitted."""

    def stop(self) -> None:
        """No new wave, and nothing of the waves after the first is waited for."""
        self._stopping.set()

    async def run(self) -> None:
        """Rage. Raises `MediaFailed` when the server takes no jobs, TimeoutError when the first wave is not made in time."""
        self.began = time.monotonic()
        try:
            async with asyncio.timeout(FIRST_WAVE_S):
                await self._wave(0)
            while not self._stopping.is_set():
                self.waves += 1
                wave = asyncio.create_task(self._wave(self.waves), name="storm wave")
                stopping = asyncio.create_task(self._stopping.wait(), name="storm stop")
                try:
                    await asyncio.wait((wave, stopping), return_when=asyncio.FIRST_COMPLETED)
                    if wave.done():
                        wave.result()
                finally:
                    for task in (wave, stopping):
                        task.cancel()
                    await asyncio.gather(wave, stopping, return_exceptions=True)
        finally:
            self.ended = time.monotonic()
            self.raging.set()

    def completed(self, since: float, until: float) -> int:
        """Jobs that were made between two moments."""
        return sum(made.ended is not None and not made.failure and since <= made.ended <= until for made in self.jobs)

    def first_wave(self) -> list[Made]:
        """The jobs that had to be made."""
        return [made for made in self.jobs if made.wave == 0]

    async def _wave(self, number: int) -> None:
        """Submit a wave and see it to its end; everything of it is deleted then, made or not."""
        orders: list[asyncio.Task[Job]] = []
        jobs: dict[str, Made] = {}

        async def order(kind: str, submission: Coroutine[Any, Any, Job]) -> None:
            # Not cancelled with this: a job whose order went out is known, so that it can be deleted.
            orders.append(asyncio.create_task(submission, name=f"order of a {kind}"))
            jobs[(await asyncio.shield(orders[-1]))["id"]] = self._new(kind, number)

        try:
            for index in range(max(self._clips, self._pictures)):
                if index < self._clips:
                    prompt = f"{self._thing()} {self._random.choice(MOTIONS)}"
                    await order("clip", self._media.submit_clip(prompt, seconds=self._seconds, model=self._model, seed=self._seed()))
                if index < self._pictures:
                    await order("picture", self._media.submit_picture(self._thing(), model=self._model, seed=self._seed()))
            self.raging.set()
            await self._follow(jobs)
        finally:
            await self._clear(orders)

    async def _follow(self, jobs: Mapping[str, Made]) -> None:
        """Two looks at lists for all of them, again and again."""
        while any(made.ended is None for made in jobs.values()):
            for job in (*await self._media.clips(), *await self._media.pictures()):
                made = jobs.get(job["id"])
                if made is not None and made.ended is None and job["status"] in ("completed", "failed"):
                    made.ended = time.monotonic()
                    made.failure = (job.get("error") or {}).get("message", "failed") if job["status"] == "failed" else ""
            await asyncio.sleep(LOOK_S)

    async def _clear(self, orders: Sequence[asyncio.Task[Job]]) -> None:
        if not orders:
            return
        done, late = await asyncio.wait(orders, timeout=LAST_ORDERS_S)
        for task in late:
            task.cancel()
            self.lost.append(f"an order was not answered within {LAST_ORDERS_S:g} s")
        for task in done:
            if task.cancelled() or task.exception() is not None:
                continue  # whoever waited for it has the error
            try:
                await self._media.delete(task.result())
            except MediaFailed as error:
                self.lost.append(f"{task.result()['id']} could not be deleted: {error}")

    def _new(self, kind: str, wave: int) -> Made:
        made = Made(kind, wave, time.monotonic())
        self.jobs.append(made)
        return made

    def _seed(self) -> int:
        return self._random.randrange(2**31)

    def _thing(self) -> str:
        pick: Callable[[tuple[str, ...]], str] = self._random.choice
        colour, background = self._random.sample(COLOURS, 2)
        return f"a {pick(('small', 'medium', 'large'))} {colour} {pick(SHAPES)} on a {background} background"
