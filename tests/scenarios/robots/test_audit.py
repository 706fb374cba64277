"""The audit finds whatever was executed that should not have been, and nothing in a log that is as it should be."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest
from antiphon.clients.robot import Controller, ControlSettings, PolicyInfo
from antiphon.clients.robot.settings import HANDOVERS, Handover
from antiphon.scenarios.robots.audit import Audit, audit

RATE, HORIZON, STEPS = 20.0, 16, 60
POLICY = PolicyInfo(rate=RATE, horizon=HORIZON, action_dim=3, low=(-1.0,) * 3, high=(1.0,) * 3, max_prefix=8, marks=True)
HOLD = np.array([0.0, 0.0, 1.0], np.float32)
Records = list[dict[str, Any]]
Worlds = list[list[tuple[int, Any]]]


def played(handover: Handover = "rtc", delay: int = 3, episodes: int = 3) -> tuple[Records, Worlds]:
    """What a control loop and its world keep of some episodes; the chunks are chance, and now and then out of bounds. At the 45th step
    of the second, the connection is lost for a while."""
    settings = ControlSettings(handover=handover, hold_limit_s=60.0)
    controller = Controller(settings, POLICY)
    records: Records = [{"format": "", "settings": settings.record(), "policy": POLICY.record()}]
    worlds: Worlds = []
    chance = random.Random(1)

    def note(kind: str, **fields: Any) -> None:
        records.append({"kind": kind, "now": now, **fields})

    now = 100.0
    controller.online(now)
    note("online")
    for episode in range(episodes):
        controller.begin(now)
        note("begin", episode=episode)
        worlds.append([])
        coming: tuple[int, int, Any] | None = None
        for step in range(STEPS):
            if (episode, step) == (1, 45):
                coming = None
                controller.offline(now)
                note("offline", why="")
            if (episode, step) == (1, 50):
                controller.online(now)
                note("online")
            if coming is not None and step >= coming[0]:
                verdict = controller.take(coming[1], coming[2], now)
                note("take", sequence=coming[1], actions=coming[2], reason=verdict.reason)
                coming = None
            ask = controller.ask(now)
            if ask is not None:
                note("ask", sequence=ask.ticket.sequence, prefix=ask.ticket.prefix)
                actions = np.array([[chance.uniform(-1.1, 1.1) for _ in range(3)] for _ in range(HORIZON)], np.float32)
                coming = (step + delay + chance.randint(0, 2), ask.ticket.sequence, actions)
            choice = controller.step(now)
            action = HOLD if choice.action is None else choice.action
            note("step", mode=choice.mode.value, action=action, sequence=choice.sequence)
            worlds[-1].append((step, action.copy()))
            now += 1 / RATE
    note("end", action=HOLD)
    return records, worlds


@pytest.mark.parametrize("handover", HANDOVERS)
def test_a_log_that_is_as_it_should_be(handover: Handover) -> None:
    found = audit(*played(handover))
    assert found.faults == 0, found.told
    assert found.episodes == 3
    assert found.steps == 3 * STEPS == found.executed + found.waited + found.stalled
    assert found.waited >= 3 * 3
    assert (found.stalled >= 40) if handover == "wait" else (found.stalled <= 10), "the connection was lost for a while"
    assert len(found.delays) == len(found.round_trips) >= 9
    assert set(found.delays) <= {3, 4, 5}
    assert 0.14 < np.median(found.round_trips) < 0.26
    assert len(found.jumps) >= 9


def test_jumps_are_those_of_the_control_loops_own_statistics() -> None:
    records, worlds = played("switch")
    found = audit(records, worlds)
    expected = []
    newest: int | None = None
    for record in records[1:]:
        if record["kind"] == "begin":
            newest, last = None, None
        if record["kind"] == "step":
            if record["sequence"] is not None and record["sequence"] != newest:
                if newest is not None and last is not None:
                    expected.append(float(np.abs(record["action"] - last)[:2].max()))
                newest = record["sequence"]
            last = record["action"]
    assert found.jumps == pytest.approx(expected)


def steps_of(records: Records) -> list[dict[str, Any]]:
    """Those that executed an action of the policy."""
    return [record for record in records if record.get("kind") == "step" and record["sequence"] is not None]


def tampered(change: Any, handover: Handover = "rtc") -> Audit:
    """What is found after `change(records, worlds)`; as long as both agree with each other, only the rules can find it."""
    records, worlds = copy.deepcopy(played(handover))
    change(records, worlds)
    return audit(records, worlds)


def execute(records: Records, worlds: Worlds, at: int, action: Any) -> None:
    """Have the policy's nth executed action be another one, in both logs."""
    steps = [record for record in records if record.get("kind") == "step"]
    position = next(index for index, step in enumerate(steps) if step is steps_of(records)[at])
    steps[position]["action"] = np.asarray(action, np.float32)
    worlds[position // STEPS][position % STEPS] = (position % STEPS, np.asarray(action, np.float32))


def nan(records: Records, worlds: Worlds) -> None:
    execute(records, worlds, 20, [0.0, np.nan, 0.0])


def out_of_bounds(records: Records, worlds: Worlds) -> None:
    execute(records, worlds, 20, [0.0, 1.5, 0.0])


def another(records: Records, worlds: Worlds) -> None:
    execute(records, worlds, 20, [0.1, 0.1, 0.1])


def a_step_later(records: Records, worlds: Worlds) -> None:
    steps = steps_of(records)
    execute(records, worlds, 20, steps[21]["action"])


def older_request(records: Records, worlds: Worlds) -> None:
    steps = steps_of(records)
    at = next(at for at in range(15, len(steps)) if steps[at]["sequence"] != steps[at - 1]["sequence"])
    steps[at + 1]["sequence"] = steps[at - 1]["sequence"]


def never_asked(records: Records, worlds: Worlds) -> None:
    del records[next(at for at, record in enumerate(records) if record.get("kind") == "ask")]


def never_came(records: Records, worlds: Worlds) -> None:
    del records[next(at for at, record in enumerate(records) if record.get("kind") == "take")]


def fenced(records: Records, worlds: Worlds) -> None:
    """An episode began in the middle of a chunk, and it went on."""
    at = next(at for at, record in enumerate(records) if record is steps_of(records)[20])
    records.insert(at, {"kind": "offline", "now": records[at]["now"], "why": ""})


def fenced_by_the_server(records: Records, worlds: Worlds) -> None:
    """It refused a request for a fence of its own, and the chunk before went on."""
    asks = [at for at, record in enumerate(records) if record.get("kind") == "ask"]
    asked = records[asks[3]]
    records.insert(asks[3] + 1, {"kind": "fail", "now": asked["now"], "sequence": asked["sequence"], "reason": "fenced", "message": ""})


def too_old(records: Records, worlds: Worlds) -> None:
    for record in records[records.index(steps_of(records)[20]) :]:
        record["now"] += 30.0


def not_what_was_commanded(records: Records, worlds: Worlds) -> None:
    step, action = worlds[1][30]
    worlds[1][30] = (step, action + np.float32(0.01))


def executed_without_command(records: Records, worlds: Worlds) -> None:
    worlds[0].append((STEPS, HOLD))


def left_out(records: Records, worlds: Worlds) -> None:
    del worlds[2][10]


def an_episode_more(records: Records, worlds: Worlds) -> None:
    worlds.append([])


def not_finite_and_unseen(records: Records, worlds: Worlds) -> None:
    worlds[0][40] = (40, np.array([np.inf, 0.0, 0.0], np.float32))


FAULTS = [
    nan,
    out_of_bounds,
    another,
    a_step_later,
    older_request,
    never_asked,
    never_came,
    fenced,
    fenced_by_the_server,
    too_old,
    not_what_was_commanded,
    executed_without_command,
    left_out,
    an_episode_more,
    not_finite_and_unseen,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_fault_is_found_and_told(fault: Any) -> None:
    found = tampered(fault)
    assert found.faults >= 1
    assert found.told
    assert all(sentence.endswith(".") for sentence in found.told)


@pytest.mark.parametrize("fault", [nan, fenced, never_came], ids=lambda fault: fault.__name__)
def test_where_chunks_overlap_as_well(fault: Any) -> None:
    assert tampered(fault, "ensemble").faults >= 1


def test_several_robots_are_added_up() -> None:
    whole = Audit()
    for _ in range(3):
        whole.add(tampered(not_what_was_commanded))
        whole.add(audit(*played()))
    assert whole.faults == 3
    assert whole.episodes == 18
    assert len(whole.told) == 3
    for _ in range(5):
        whole.add(tampered(left_out))
    assert whole.faults > 5 >= len(whole.told), "a few are put into words"
