"""A video of robots at work, side by side, as fast as it was.

Nothing is drawn while they work: at each control step a `Film` notes the scene (a few microseconds, half a kilobyte), and the pictures
are drawn from the notes afterwards.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ...clients.robot import Mode, RobotClient
from ...codecs.images import Picture
from ...codecs.video import Mp4Writer
from ...robot.sim.simulation import Scene
from ...robot.sim.worlds import World
from .driving import SimulatedRobot

MOST = 16
"""Robots in a video."""
MAX_MOMENTS = 30_000
"""Of a film: 25 minutes. Policy: what comes later is not noted."""
LINGER_S = 1.2
"""How long a video goes on when the last robot is done."""
FLASH_S = 0.45
"""How long a cell shows how an episode ended, when another follows."""
MARKS = 12
"""Ended episodes that a cell has a mark of; the latest."""
STRIP, HEADER, GAP = 42, 30, 6
"""Pixels: below each picture, on top of all, between cells."""

GROUND, CELL, INK, FAINT = (16, 21, 27), (28, 35, 44), (235, 240, 245), (140, 152, 165)
GREEN, RED, AMBER, BLUE = (46, 160, 98), (205, 70, 55), (214, 150, 40), (70, 130, 200)
MODES = {Mode.RUN: BLUE, Mode.HOLD: AMBER, Mode.STOP: RED}


class NoVideo(Exception):
    """A package is missing; the message holds the command that mends it."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A robot after a control step. `episode` counts from 0."""

    at: float
    scene: Scene
    episode: int
    prompt: str
    step: int
    mode: Mode
    over: bool
    did: str


@dataclass(slots=True, eq=False)
class Film:
    """What one robot did. To be called after each control step, as `driving.drive` does with its `watch`."""

    moments: list[Moment] = field(default_factory=list)
    ends: dict[int, bool] = field(default_factory=dict)
    """Of each episode that ended: was it done?"""

    def __call__(self, client: RobotClient, robot: SimulatedRobot, episode: int) -> None:
        if robot.over:
            self.ends[episode] = robot.succeeded
        if len(self.moments) < MAX_MOMENTS:
            scene = robot.simulation.scene()
            self.moments.append(Moment(time.monotonic(), scene, episode, robot.prompt, robot.steps, client.mode, robot.over, robot.did))

    def at(self, when: float) -> int:
        """The moment that was last at that time."""
        return max(0, bisect_right(self.moments, when, key=lambda moment: moment.at) - 1)


def check() -> None:
    """Raise `NoVideo` if a package is missing."""
    missing = [package for name, package in (("av", "av"), ("PIL", "pillow")) if find_spec(name) is None]
    if missing:
        raise NoVideo(f"A video needs {' and '.join(missing)}: pip install 'antiphon[media]'")


def frames_of(films: Sequence[Film], rate: float) -> list[float]:
    """The times of a video's frames: one for each control step, from the first one on."""
    begin = min(film.moments[0].at for film in films)
    end = max(film.moments[-1].at for film in films) + LINGER_S
    return [begin + (index + 0.5) / rate for index in range(math.ceil((end - begin) * rate - 1e-6))]


def shoot(
    path: Path, world: World, films: Sequence[Film], *, rate: float, title: str, tell: Callable[[int, int], None] | None = None
) -> int:
    """Draw the video of the first `MOST` films, `rate` frames a second; `tell(frame, of)` is called as it goes. Gives the number of its
    frames; 0: nothing was filmed, so there is none. Raises `NoVideo`, `RenderError`, `VideoError`, OSError. All on one thread."""
    check()
    films = [film for film in films if film.moments][:MOST]
    if not films:
        return 0
    times = frames_of(films, rate)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet = _Sheet(world, len(films), title)
    try:
        with Mp4Writer(path, rate, quality=22) as writer:
            for number, when in enumerate(times):
                writer.write(sheet.draw(films, when, when - times[0]))
                if tell is not None:
                    tell(number + 1, len(times))
    finally:
        sheet.close()
    return len(times)


class _Sheet:
    """Puts the robots' pictures side by side, each with its caption."""

    def __init__(self, world: World, robots: int, title: str) -> None:
        from PIL import ImageFont

        self._world = world
        self._title = title
        self._columns = robots if robots <= 3 else math.ceil(math.sqrt(robots))
        self._rows = math.ceil(robots / self._columns)
        self._side = {1: 480, 2: 320, 3: 320 if robots == 3 else 256}.get(self._columns, 240)
        self._fonts = {size: ImageFont.load_default(size) for size in (12, 13, 15)}
        self._stages: dict[str, Any] = {}
        self._drawn: dict[int, tuple[Moment, Any]] = {}

    def draw(self, films: Sequence[Film], when: float, second: float) -> Picture:
        """The frame at a time."""
        from PIL import Image, ImageDraw

        across, down = self._side + GAP, self._side + STRIP + GAP
        image = Image.new("RGB", (self._columns * across + GAP, HEADER + self._rows * down), GROUND)
        pen = ImageDraw.Draw(image)
        pen.text((GAP + 2, HEADER // 2), self._title, INK, self._fonts[13], anchor="lm")
        pen.text((image.width - GAP - 2, HEADER // 2), f"{second:.1f} s", INK, self._fonts[13], anchor="rm")
        for number, film in enumerate(films):
            left, top = GAP + number % self._columns * across, HEADER + number // self._columns * down
            index = film.at(when)
            image.paste(self._picture(number, film.moments[index]), (left, top))
            self._caption(pen, film, index, when, left, top)
        return np.asarray(image)

    def _picture(self, number: int, moment: Moment) -> Any:
        """The robot's picture, drawn anew if anything has happened since the last."""
        from PIL import Image

        before = self._drawn.get(number)
        if before is not None and before[0] is moment:
            return before[1]
        key = "" if self._world.shared_world else moment.scene.task
        if key not in self._stages:
            self._stages[key] = self._world.stage(moment.scene.task)
        picture = Image.fromarray(self._stages[key].draw(moment.scene, self._world.view, self._side))
        self._drawn[number] = moment, picture
        return picture

    def _caption(self, pen: Any, film: Film, index: int, when: float, left: int, top: int) -> None:
        """What it was told, where it is, what it does; and for a while, how the last episode ended."""
        moment, side = film.moments[index], self._side
        below = top + side
        ended = _ended(film, index, when)
        strip = CELL if ended is None else GREEN if ended.did else RED
        pen.rectangle((left, below, left + side - 1, below + STRIP - 1), strip)
        shown = ended or moment
        pen.text((left + 8, below + 12), self._fit(pen, f"“{shown.prompt}”", side - 16), INK, self._fonts[12], anchor="lm")
        if ended is not None:
            word = f"done: {ended.did}" if ended.did else "not done"
            pen.text((left + 8, below + 29), f"{word}, {ended.step} steps", INK, self._fonts[13], anchor="lm")
            pen.rectangle((left, top, left + side - 1, below + STRIP - 1), outline=strip, width=3)
            return
        pen.rounded_rectangle((left + 8, below + 22, left + 52, below + 37), 4, MODES[moment.mode])
        pen.text((left + 30, below + 30), moment.mode.value.upper(), INK, self._fonts[12], anchor="mm")
        pen.text((left + 60, below + 30), f"step {moment.step}", FAINT, self._fonts[12], anchor="lm")
        for number, done in enumerate(reversed(self._ends(film, moment.episode))):
            right = left + side - 8 - number * 11
            pen.rectangle((right - 8, below + 26, right, below + 34), GREEN if done else RED)

    def _ends(self, film: Film, episode: int) -> list[bool]:
        """How the episodes before this one ended."""
        return [film.ends[number] for number in sorted(film.ends) if number < episode][-MARKS:]

    def _fit(self, pen: Any, text: str, width: int) -> str:
        """As much of a text as there is room for."""
        font = self._fonts[12]
        if pen.textlength(text, font) <= width:
            return text
        while len(text) > 1 and pen.textlength(text + "…”", font) > width:
            text = text[:-1]
        return text + "…”"

    def close(self) -> None:
        while self._stages:
            self._stages.popitem()[1].close()


def _ended(film: Film, index: int, when: float) -> Moment | None:
    """The end of an episode that is to be shown still: of this one for good if it is the film's last, of the one before for a while."""
    moment = film.moments[index]
    if moment.over:
        return moment
    first = index - moment.step  # the moment after its first step has index `first + 1`
    before = film.moments[first] if 0 <= first < index else None
    return before if before is not None and before.over and when - before.at < FLASH_S else None
