"""Logs: bounded, readable when they are cut off, and replays that notice what was changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from antiphon.clients.robot import BadLog, Controller, ControlSettings, EpisodeLog, Mode, PolicyInfo, read_log, replay

POLICY = PolicyInfo(name="p", rate=10.0, horizon=8, action_dim=2, low=(-1.0, -1.0), high=(1.0, 1.0), max_prefix=4, marks=True)
SETTINGS = ControlSettings(handover="rtc", hold_limit_s=0.5, startup_s=1.0)


def write(path: Path, steps: int = 60, **options: Any) -> EpisodeLog:
    """A run with chunks of noise, each two steps late, until they stop coming."""
    random = np.random.default_rng(3)
    controller = Controller(SETTINGS, POLICY)
    coming: list[tuple[int, int]] = []
    with EpisodeLog(path, **options) as log:
        log.begin(SETTINGS, POLICY)

        def note(kind: str, now: float, **more: Any) -> None:
            log.write({"kind": kind, "now": now, **more})

        for kind in ("online", "begin"):
            getattr(controller, kind)(0.0)
            note(kind, 0.0)
        for step in range(steps):
            now = step / 10
            if coming and step >= coming[0][0] and step < 40:
                _, sequence = coming.pop()
                actions = random.normal(size=(8, 2)) * 2
                controller.take(sequence, actions, now)
                note("take", now, sequence=sequence, actions=actions)
            ask = controller.ask(now)
            if ask is not None:
                coming.append((step + 2, ask.ticket.sequence))
                note("ask", now)
            choice = controller.step(now)
            note("step", now, mode=choice.mode.value, action=np.zeros(2) if choice.action is None else choice.action)
    return log


def test_a_replay_gives_the_same_actions(tmp_path: Path) -> None:
    write(tmp_path / "log")
    again = replay(read_log(tmp_path / "log"))
    assert not again.differences
    assert len(again.actions) == 60
    assert again.modes[0] is Mode.HOLD
    assert again.modes[-1] is Mode.STOP
    assert again.modes.count(Mode.RUN) > 30
    assert all(np.abs(action).max() <= 1 for action in again.actions)


def test_a_replay_notices_a_chunk_or_an_action_that_was_changed(tmp_path: Path) -> None:
    write(tmp_path / "log")
    records = read_log(tmp_path / "log")
    for kind, key in (("step", "action"), ("take", "actions")):
        spoilt = [dict(record) for record in records]
        victim = [record for record in spoilt if record.get("kind") == kind][4]
        victim[key] = np.asarray(victim[key]) * 0 + 0.123
        assert replay(spoilt).differences


def test_a_log_is_bounded_and_what_is_there_replays(tmp_path: Path) -> None:
    log = write(tmp_path / "log", max_bytes=3000)
    assert log.left_out > 20
    assert log.path.stat().st_size <= 3000
    again = replay(read_log(log.path))
    assert not again.differences
    assert 5 < len(again.actions) < 60


def test_a_log_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = write(tmp_path / "log").path
    whole = read_log(path)
    path.write_bytes(path.read_bytes()[:-3])
    assert len(read_log(path)) == len(whole) - 1
    assert not replay(read_log(path)).differences


def test_what_is_no_log_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for data in (b"", b"hello, this is no log", b"\x00\x00\x00\x01\x05", b"\x00\x00\x00\x01\x80"):
        path.write_bytes(data)
        with pytest.raises(BadLog, match="no episode log"):
            read_log(path)
    write(path)
    records = read_log(path)
    with pytest.raises(BadLog, match="dance"):
        replay([*records, {"kind": "dance", "now": 1.0}])
    with pytest.raises(BadLog):
        replay([{"settings": {"handover": "hope"}, "policy": {}}])
