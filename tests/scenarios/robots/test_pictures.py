"""The video and the timeline, from films and tracks made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from antiphon.clients.robot import Mode
from antiphon.codecs import images, video
from antiphon.robot.sim.worlds import TABLETOP
from antiphon.scenarios.robots.timeline import Lane, draw
from antiphon.scenarios.robots.tracks import Request, Step, Track
from antiphon.scenarios.robots.video import LINGER_S, Film, Moment, frames_of, shoot

RATE = 20.0


def film(start: float, steps: int, done: bool = True) -> Film:
    """An expert at work."""
    world = TABLETOP.simulate()
    world.reset("lift-red", 3)
    found = Film()
    for step in range(steps):
        world.step(world.expert())
        over = step == steps - 1
        did = "lift-red" if over and done else ""
        found.moments.append(Moment(start + step / RATE, world.scene(), 0, "lift the red cube", step + 1, Mode.RUN, over, did))
    return found


def test_a_video_has_a_frame_for_each_step_of_the_clock(tmp_path: Path) -> None:
    films = [film(100.0, 10), film(100.4, 6, done=False), Film()]
    told: list[tuple[int, int]] = []
    frames = shoot(tmp_path / "out.mp4", TABLETOP, films, rate=RATE, title="two", tell=lambda *of: told.append(of))
    assert frames == len(frames_of(films[:2], RATE)) == round((0.65 + LINGER_S) * RATE)
    found = video.probe(tmp_path / "out.mp4")
    assert (found.frames, found.fps, found.codec) == (frames, RATE, "h264")
    assert told[-1] == (frames, frames)
    pictures = list(video.read_frames(tmp_path / "out.mp4"))
    first, last = pictures[0].astype(int), pictures[-1].astype(int)
    assert np.abs(first - last).mean() > 1, "the robots have moved"
    below = last[-20:-10]  # the strips of captions
    assert (below[:, 10:300, 1] - below[:, 10:300, 0]).mean() > 40, "done: green"
    assert (below[:, 340:640, 0] - below[:, 340:640, 1]).mean() > 40, "not done: red"


def test_without_a_step_there_is_no_video(tmp_path: Path) -> None:
    assert shoot(tmp_path / "out.mp4", TABLETOP, [Film()], rate=RATE, title="none") == 0
    assert not list(tmp_path.iterdir())


def track(seconds: float, start: float = 5.0) -> Track:
    """Chunks of 16 actions, half executed, each third one late."""
    found = Track(RATE, episodes=[start], offline=[(start + 0.5, start + 0.6)])
    for number in range(int(seconds * RATE / 8)):
        asked = start + number * 8 / RATE
        late = number % 3 == 2
        request = Request(number + 1, asked, 2, 0, asked + 0.1, "late" if late else "", 16)
        found.requests.append(request)
        for index in range(8):
            at = asked + 0.1 + index / RATE
            action = np.array([np.sin(at), np.cos(at), 1.0], np.float32)
            mode = Mode.HOLD if late else Mode.RUN
            found.steps.append(Step(at, at + 1 / RATE, mode, action, None if late else number + 1))
            if not late:
                request.used.append((at, at + 1 / RATE))
        found.end = asked + 0.5
    return found


@pytest.mark.parametrize(("robots", "seconds"), [(1, 3.0), (2, 18.0), (16, 17.0)])
def test_a_timeline_is_a_picture_of_bounded_size(tmp_path: Path, robots: int, seconds: float) -> None:
    lanes = [Lane(f"robot {number + 1}", track(seconds), []) for number in range(robots)]
    draw(tmp_path / "out.png", lanes, "by hand", ("dx", "dy", "suction"))
    data = (tmp_path / "out.png").read_bytes()
    picture = images.decode(data)
    assert picture.format == "png"
    width, height = picture.size
    assert width == 1870
    assert 200 < height < 2800
    colours = {tuple(colour) for colour in picture.picture.reshape(-1, 3)[::7].tolist()}
    assert (47, 111, 181) in colours, "a chunk"
    assert (200, 55, 45) in colours, "a chunk that was not taken"


def test_robots_that_did_nothing_make_an_empty_picture(tmp_path: Path) -> None:
    draw(tmp_path / "out.png", [Lane("robot 1", Track(RATE), [])], "nothing")
    assert images.decode((tmp_path / "out.png").read_bytes()).size[0] == 1870
