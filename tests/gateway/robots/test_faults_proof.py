"""The proof itself: a good journal passes, and each thing that must never happen is found in one where it does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from antiphon.tests.gateway.robots.journal import Acted, Asked, Began, Ended, Lost, Observed, Opened, Record, Replied
from antiphon.tests.gateway.robots.proof import check, spell

HOLD = np.array([0, 0, 0, -1], np.float32)
STEP = 0.05


def state(number: int) -> Any:
    return np.full(20, number, np.float32)


def chunk_of(number: int) -> Any:
    """Each action of each chunk is like no other."""
    return (np.arange(64, dtype=np.float32).reshape(16, 4) + 64 * number) / 1000


def journal() -> list[Record]:
    """Two episodes of four chunks: held until the first is there. Each next one comes while one is executed, and takes over at the third
    of its actions."""
    records: list[Record] = [Opened(0.0)]
    at, sequence, observed = 0.0, 0, 0
    for episode in (1, 2):
        records.append(Began(at, episode, "task"))
        count, plan, base, reply = 0, None, 0, None
        for step in range(30):
            at += STEP
            observed += 1
            records.append(Observed(at, state(observed)))
            if reply is not None and step - reply[0] == 2:
                records.append(Replied(at, {"sequence": sequence, "episode": f"e{episode}", "epoch": episode}, "chunk", chunk_of(sequence)))
                plan, base, reply = chunk_of(sequence), reply[1], None
            if (plan is None and reply is None) or (plan is not None and count - base >= 8 and reply is None):
                sequence += 1
                records.append(Asked(at, sequence, f"e{episode}", 2.0, state(observed)))
                reply = (step, count)
            if plan is None:
                records.append(Acted(at, HOLD, True))
            else:
                records.append(Acted(at, plan[count - base], False))
                count += 1
        records.append(Ended(at, True))
    return records


def indexes(records: list[Record], kind: type[Any]) -> list[int]:
    return [index for index, record in enumerate(records) if isinstance(record, kind)]


def policy_actions(records: list[Record]) -> list[int]:
    return [index for index in indexes(records, Acted) if not records[index].held]  # type: ignore[union-attr]


def changed(records: list[Record], index: int, **fields: Any) -> None:
    records[index] = dataclasses.replace(records[index], **fields)


def with_action(action: Any) -> Callable[[list[Record]], None]:
    return lambda records: changed(records, policy_actions(records)[5], action=np.array(action, np.float32))


def action_of_the_episode_before(records: list[Record]) -> None:
    old = records[policy_actions(records)[3]].action  # type: ignore[union-attr]
    second = indexes(records, Began)[1]
    changed(records, next(index for index in policy_actions(records) if index > second), action=old)


def an_action_twice(records: list[Record]) -> None:
    fifth, sixth = policy_actions(records)[4:6]
    changed(records, sixth, action=records[fifth].action)  # type: ignore[union-attr]


def chunk_from_before_a_new_connection(records: list[Record]) -> None:
    records.insert(policy_actions(records)[4], Opened(0.31))


def action_without_a_connection(records: list[Record]) -> None:
    at = policy_actions(records)[2]
    records.insert(at, Lost(records[at].at, "gone"))


def chunk_of_an_older_epoch(records: list[Record]) -> None:
    """The server has said that it moved on, and the robot goes on with what it had."""
    at = policy_actions(records)[4]
    records.insert(at, Replied(records[at].at, {"sequence": 1, "epoch": 9}, "fenced", None))


def chunk_that_echoes_another_episode(records: list[Record]) -> None:
    changed(records, indexes(records, Replied)[0], echo={"sequence": 1, "episode": "e0", "epoch": 1})


def chunk_that_nobody_asked_for(records: list[Record]) -> None:
    changed(records, indexes(records, Replied)[0], echo={"sequence": 77, "episode": "e1", "epoch": 1})


def chunk_after_its_deadline(records: list[Record]) -> None:
    changed(records, indexes(records, Asked)[0], deadline_s=-1.0)


def chunk_that_is_not_finite(records: list[Record]) -> None:
    actions = chunk_of(1)
    actions[15, 3] = np.nan
    changed(records, indexes(records, Replied)[0], actions=actions)


def chunk_out_of_alignment(records: list[Record]) -> None:
    """From its beginning, although two actions have been executed since its observation."""
    second = indexes(records, Replied)[1]
    changed(records, next(index for index in policy_actions(records) if index > second), action=chunk_of(2)[0])


def episode_that_comes_back(records: list[Record]) -> None:
    second = indexes(records, Began)[1]
    for index in indexes(records, Asked):
        if index > second:
            changed(records, index, episode="e1")


def observation_that_was_never_made(records: list[Record]) -> None:
    changed(records, indexes(records, Asked)[1], state=state(999))


FAULTS: list[tuple[Callable[[list[Record]], None], str]] = [
    (with_action([np.nan, 0.1, 0.1, 0.1]), "not four finite numbers"),
    (with_action([2.0, 0.1, 0.1, 0.1]), "within the bounds"),
    (with_action([0.1, 0.1, 0.1]), "not four finite numbers"),
    (with_action([0.9, 0.9, 0.9, 0.9]), "not at all"),
    (action_of_the_episode_before, "not at all"),
    (an_action_twice, "only at another place"),
    (chunk_out_of_alignment, "only at another place"),
    (chunk_from_before_a_new_connection, "not at all"),
    (action_without_a_connection, "without a connection"),
    (chunk_of_an_older_epoch, "of epoch 1 was executed in epoch 9"),
    (chunk_that_echoes_another_episode, "echoes episode 'e0'"),
    (chunk_that_nobody_asked_for, "answers request 77"),
    (chunk_after_its_deadline, "too late"),
    (chunk_that_is_not_finite, "is not finite"),
    (episode_that_comes_back, "has been before"),
    (observation_that_was_never_made, "was never made"),
]


def test_a_good_journal_passes() -> None:
    proof = check(journal())
    assert not proof.wrong
    assert (proof.episodes, proof.ended, proof.succeeded, proof.chunks) == (2, 2, 2, 8)
    assert (proof.held, proof.executed) == (4, 56)


@pytest.mark.parametrize(("spoil", "said"), FAULTS, ids=[f"{number}: {said}" for number, (_, said) in enumerate(FAULTS)])
def test_what_must_not_happen_is_found(spoil: Callable[[list[Record]], None], said: str) -> None:
    records = journal()
    spoil(records)
    wrong = check(records).wrong
    assert any(said in sentence for sentence in wrong), wrong


def test_how_a_robot_fared() -> None:
    seen = spell(journal(), 0.0, 1.52)
    assert (seen.steps, seen.executed, seen.stalls, seen.lost) == (30, 28, 0, ())
    assert seen.answers == {"chunk": 4}
    assert seen.slowest == pytest.approx(2 * STEP)
