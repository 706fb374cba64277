"""A second process that computes gradients for the first, which never waits for it.

The assistant copies the newest weights, computes one batch's gradients and lays them down; the trainer adds them to its own when they
are there. They are at most a few steps stale, which training bears well, and a busy second core slows nobody. The price is that a run with
an assistant does not repeat bit by bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing as multiprocessing
from torch import Tensor

from .flow import FlowTrainer

_WAIT_S = 0.02


class Assistant:
    """Owns the process. Use as a context; `exchange` once a step."""

    def __init__(self, build: Callable[[int], FlowTrainer], trainer: FlowTrainer, niceness: int = 5) -> None:
        size = sum(value.numel() for value in trainer.compute)
        self._weights = torch.zeros(size, dtype=torch.bfloat16)
        self._gradients = torch.zeros(size)
        for shared in (self._weights, self._gradients):
            shared.untyped_storage().share_memory_()
        context = multiprocessing.get_context("spawn")
        self._ready, self._stop = context.Event(), context.Event()
        self._process = context.Process(
            target=_assist,
            args=(build, self._weights, self._gradients, self._ready, self._stop, niceness, os.getpid()),
            daemon=True,
        )
        self.taken = 0
        """How many batches it has contributed."""

    def __enter__(self) -> Assistant:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._process.join(timeout=30)
        if self._process.is_alive():
            self._process.terminate()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def publish(self, trainer: FlowTrainer) -> None:
        """Show the newest weights."""
        with torch.no_grad():
            torch.cat([value.flatten() for value in trainer.compute], out=self._weights)

    def exchange(self, own: Tensor) -> Tensor:
        """The mean of the trainer's gradients and the assistant's, if there are any."""
        if not self._ready.is_set():
            return own
        both: Tensor = (own + self._gradients) / 2
        self._ready.clear()
        self.taken += 1
        return both


def _assist(
    build: Callable[[int], FlowTrainer], weights: Tensor, gradients: Tensor, ready: Any, stop: Any, niceness: int, parent: int
) -> None:
    os.nice(niceness)
    torch.set_num_threads(1)
    trainer = build(os.getpid())
    sizes = [value.numel() for value in trainer.compute]
    while not stop.is_set() and os.getppid() == parent:
        if ready.is_set():
            stop.wait(_WAIT_S)
            continue
        with torch.no_grad():
            for value, piece in zip(trainer.compute, torch.split(weights, sizes), strict=True):
                value.copy_(piece.view_as(value))
        trainer.gradients()
        gradients.copy_(trainer.take_gradients())
        ready.set()
