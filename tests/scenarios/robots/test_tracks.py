"""What a log tells of chunks, from records written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from antiphon.scenarios.robots.tracks import FENCED, LOST, Track, track_of

CHUNK = np.zeros((4, 2), np.float32)


def step(now: float, sequence: int | None, value: float = 0.0) -> dict[str, Any]:
    mode = "hold" if sequence is None else "run"
    return {"kind": "step", "now": now, "mode": mode, "action": np.array([value, 9.0], np.float32), "sequence": sequence}


def ask(now: float, sequence: int) -> dict[str, Any]:
    return {"kind": "ask", "now": now, "sequence": sequence, "prefix": 0}


def take(now: float, sequence: int, reason: str = "") -> dict[str, Any]:
    return {"kind": "take", "now": now, "sequence": sequence, "actions": CHUNK, "reason": reason}


def begin(now: float) -> dict[str, Any]:
    return {"kind": "begin", "now": now, "episode": "e"}


def track(*records: dict[str, Any]) -> Track:
    return track_of(records, rate=10.0)


def test_a_request_its_chunk_and_when_its_actions_were_executed():
    found = track(begin(0.0), ask(0.1, 1), step(0.1, None), take(0.15, 1), step(0.2, 1, 1.0), step(0.3, 1, 1.0))
    (request,) = found.requests
    assert (request.asked, request.answered, request.why_not, request.horizon) == (0.1, 0.15, "", 4)
    assert np.allclose(request.used, [(0.2, 0.3), (0.3, 0.4)])
    assert np.allclose(found.round_trips(), [0.05])
    assert found.begins() == [0.1]


def test_why_a_request_has_no_chunk():
    found = track(
        begin(0.0),
        ask(0.1, 1),
        take(0.4, 1, "late"),
        ask(0.5, 2),
        begin(0.6),
        ask(0.7, 3),
        {"kind": "offline", "now": 0.8, "why": "gone"},
        {"kind": "online", "now": 1.1},
        ask(1.2, 4),
        {"kind": "fail", "now": 1.3, "sequence": 4, "reason": "superseded", "message": ""},
        ask(1.4, 5),
        {"kind": "end", "now": 1.5, "action": np.zeros(2)},
        {"kind": "offline", "now": 1.6, "why": ""},
    )
    assert [request.why_not for request in found.requests] == ["late", FENCED, LOST, "superseded", FENCED]
    assert found.offline[0] == (0.8, 1.1)


def test_a_jump_is_between_chunks_of_one_episode_and_leaves_the_gripper_out():
    asked = [ask(0.0, number) for number in (1, 2, 3)]
    found = track(
        begin(0.0),
        *asked,
        step(0.1, None, 0.0),
        step(0.2, 1, 1.0),  # the first chunk takes over from nothing
        step(0.3, 1, 0.5),
        step(0.4, 2, -0.25),
        begin(0.45),
        step(0.5, 3, 1.0),  # another episode
    )
    assert found.jumps(1) == [0.75]


def test_a_gap_longer_than_a_step_can_be_stays_a_gap():
    found = track(begin(0.0), ask(0.0, 1), step(0.1, 1), step(0.27, 1), step(0.9, 1))
    assert np.allclose(found.requests[0].used, [(0.1, 0.27), (0.27, 0.47), (0.9, 1.0)])
