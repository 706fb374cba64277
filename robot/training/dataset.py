"""Episodes on disk, and the training windows that they hold.

An episode keeps, of each step, the state, the action that was executed, the one that the expert would have taken, and whether the first
was a disturbance. A window is a chunk's worth of the expert's actions: usable where nothing disturbs it, or where all that disturbs it
lies in its first steps. Those then carry what was *executed* and must be given to the network as prefix. So it learns to go on from
prefixes that no expert would have chosen, which are those it meets when it is served.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Episode:
    """One episode of N steps. `pictures`: `[N, cameras, 3, size, size]` uint8, when they are wanted."""

    task: int
    states: list[Floats] = field(default_factory=list)
    executed: list[Floats] = field(default_factory=list)
    labels: list[Floats] = field(default_factory=list)
    disturbed: list[bool] = field(default_factory=list)
    pictures: list[npt.NDArray[np.uint8]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.states)


def save_shard(file: Path, episodes: Sequence[Episode]) -> None:
    """Write episodes; the file appears whole or not at all."""
    arrays: dict[str, npt.NDArray[Any]] = {
        "lengths": np.array([len(episode) for episode in episodes], np.int64),
        "tasks": np.array([episode.task for episode in episodes], np.int64),
        "states": np.concatenate([np.stack(episode.states) for episode in episodes]),
        "executed": np.concatenate([np.stack(episode.executed) for episode in episodes]),
        "labels": np.concatenate([np.stack(episode.labels) for episode in episodes]),
        "disturbed": np.concatenate([np.array(episode.disturbed, bool) for episode in episodes]),
    }
    if episodes[0].pictures:
        arrays["pictures"] = np.concatenate([np.stack(episode.pictures) for episode in episodes])
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".part")
    with unfinished.open("wb") as out:
        np.savez_compressed(out, allow_pickle=False, **arrays)
    os.replace(unfinished, file)


@dataclass(frozen=True, slots=True)
class Windows:
    """W windows over N steps: `start` `[W]` names the step that a window is observed at, `prefix` `[W]` how many of its actions must be
    given. `states` `[N, S]`, `pictures` `[N, …]`, `tasks` `[N]`; `chunks` `[W, H, A]`."""

    states: Floats
    pictures: npt.NDArray[np.uint8] | None
    tasks: Ints
    start: Ints
    prefix: Ints
    chunks: Floats

    def __len__(self) -> int:
        return len(self.start)


def load_windows(files: Sequence[Path], horizon: int, max_prefix: int) -> Windows:
    """Every usable window of the shards, in order."""
    found = [_windows(file, horizon, max_prefix) for file in files]
    offsets = np.cumsum([0, *(len(part.states) for part in found[:-1])])
    pictures = [part.pictures for part in found if part.pictures is not None]
    return Windows(
        states=np.concatenate([part.states for part in found]),
        pictures=np.concatenate(pictures) if pictures else None,
        tasks=np.concatenate([part.tasks for part in found]),
        start=np.concatenate([part.start + offset for part, offset in zip(found, offsets, strict=True)]),
        prefix=np.concatenate([part.prefix for part in found]),
        chunks=np.concatenate([part.chunks for part in found]),
    )


def _windows(file: Path, horizon: int, max_prefix: int) -> Windows:
    with np.load(file) as arrays:
        data = {name: arrays[name] for name in arrays.files}
    lengths = data["lengths"]
    ends = np.repeat(np.cumsum(lengths), lengths)
    index = np.arange(len(ends))[:, None] + np.arange(horizon)
    beyond = index >= ends[:, None]
    index = np.minimum(index, ends[:, None] - 1)  # after its end an episode's last action goes on
    disturbed = data["disturbed"][index] & ~beyond
    prefix = horizon - np.argmax(disturbed[:, ::-1], 1)
    prefix[~disturbed.any(1)] = 0
    usable = np.flatnonzero(prefix <= max_prefix)
    given = np.arange(horizon) < prefix[usable, None]
    chunks = np.where(given[:, :, None], data["executed"][index[usable]], data["labels"][index[usable]])
    return Windows(
        states=data["states"],
        pictures=data.get("pictures"),
        tasks=np.repeat(data["tasks"], lengths),
        start=usable,
        prefix=prefix[usable],
        chunks=chunks.astype(np.float32),
    )
