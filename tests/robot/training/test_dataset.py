"""Windows: the expert's actions where nothing disturbs, what was executed where it must be given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from antiphon.robot.training.dataset import Episode, load_windows, save_shard
from hypothesis import given, settings
from hypothesis import strategies as st

HORIZON, LONGEST = 5, 3


def episode(disturbed: list[bool], task: int = 0) -> Episode:
    """Step i has state [i], label [i] and, where it is disturbed, executed [-1 - i]."""
    made = Episode(task)
    for index, hit in enumerate(disturbed):
        made.states.append(np.array([index], np.float32))
        made.labels.append(np.array([index], np.float32))
        made.executed.append(np.array([-1 - index if hit else index], np.float32))
        made.disturbed.append(hit)
    return made


def by_hand(disturbed: list[bool]) -> list[tuple[int, int, list[float]]]:
    """(start, prefix, chunk) of each usable window, the slow way."""
    found = []
    for start in range(len(disturbed)):
        hits = [at for at in range(HORIZON) if start + at < len(disturbed) and disturbed[start + at]]
        prefix = hits[-1] + 1 if hits else 0
        if prefix > LONGEST:
            continue
        chunk: list[float] = []
        for at in range(HORIZON):
            step = min(start + at, len(disturbed) - 1)
            chunk.append(-1.0 - step if at < prefix and disturbed[step] else float(step))
        found.append((start, prefix, chunk))
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=14), min_size=1, max_size=3))
def test_windows_are_what_they_should_be(tmp_path_factory, episodes: list[list[bool]]) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path_factory.mktemp("shards") / "a.npz"
    save_shard(file, [episode(disturbed, task) for task, disturbed in enumerate(episodes)])
    expected, offset = [], 0
    for disturbed in episodes:
        expected += [(start + offset, prefix, chunk) for start, prefix, chunk in by_hand(disturbed)]
        offset += len(disturbed)
    windows = load_windows([file], HORIZON, LONGEST)
    assert [(int(s), int(p), c[:, 0].tolist()) for s, p, c in zip(windows.start, windows.prefix, windows.chunks, strict=True)] == expected
    assert [int(task) for task in windows.tasks] == [task for task, disturbed in enumerate(episodes) for _ in disturbed]


def test_shards_follow_one_another(tmp_path: Path) -> None:
    files = [tmp_path / "0.npz", tmp_path / "1.npz"]
    save_shard(files[0], [episode([False] * 4)])
    save_shard(files[1], [episode([False] * 3, task=1)])
    windows = load_windows(files, HORIZON, LONGEST)
    assert windows.start.tolist() == list(range(7))
    assert windows.states[windows.start[4]].tolist() == [0]
    assert windows.tasks.tolist() == [0] * 4 + [1] * 3
