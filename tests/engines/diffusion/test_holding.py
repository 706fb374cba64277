"""Stepping aside for realtime work."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from antiphon.engines.diffusion.holding import Holding
from antiphon.engines.gate import GateWriter
from antiphon.engines.messages import DiffusionStep

from .toy import ToyModel, engine, request


@dataclass
class FakeGate:
    held: bool = False
    recent: bool = False

    def busy(self) -> bool:
        return self.held

    def live(self, within_s: float) -> bool:
        return self.recent


def holding(gate: FakeGate | None, hold_s: float = 0.2) -> Holding:
    made = Holding(gate, hold_s=hold_s, live_rows=4, live_s=5.0, ageing_s=10.0)
    made.ended(time.monotonic())
    return made


async def waited(made: Holding, oldest: float = 0.0) -> float:
    began = time.monotonic()
    await made.wait(oldest)
    return time.monotonic() - began


async def test_it_waits_while_the_gate_is_held_but_not_for_ever() -> None:
    gate = FakeGate(held=True)
    made = holding(gate)
    assert 0.15 < await waited(made) < 2.0
    assert made.held == 1
    assert made.held_seconds > 0.15
    gate.held = False
    made.ended(time.monotonic())
    assert await waited(made) < 0.1
    assert made.held == 1


async def test_it_goes_on_when_the_gate_opens() -> None:
    gate = FakeGate(held=True)
    made = holding(gate, hold_s=30.0)
    asyncio.get_running_loop().call_later(0.05, setattr, gate, "held", False)
    assert await waited(made) < 5.0


async def test_the_older_the_work_the_shorter_the_wait() -> None:
    made = holding(FakeGate(held=True), hold_s=1.0)
    assert await waited(made, oldest=190.0) < 0.5  # a twentieth


def test_rows_are_capped_while_realtime_is_live() -> None:
    gate = FakeGate()
    made = holding(gate)
    assert made.cap(16) == 16
    gate.recent = True
    assert made.cap(16) == 4
    assert made.cap(2) == 2
    assert holding(None).cap(16) == 16


def test_between_two_passes_it_waits_too() -> None:
    made = holding(FakeGate(held=True), hold_s=0.05)
    asyncio.run(made.wait(0.0))
    began = time.monotonic()
    made.wait_here()
    assert 0.03 < time.monotonic() - began < 1.0
    assert made.held == 2


async def test_an_engine_steps_aside_for_a_gateway_and_says_how_often(tmp_path: Path) -> None:
    gate = GateWriter(tmp_path / "gate")
    model = ToyModel(pause=0.001)
    made = engine(model, gate=True, gate_file=str(tmp_path / "gate"), hold_ms=300.0, live_rows=4)
    await made.open()
    steps: list[tuple[int, float]] = []

    async def read(prompt: str) -> None:
        async with aclosing(made.stream(request(prompt, steps=8))) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                if isinstance(chunk, DiffusionStep):
                    steps.append((chunk.step, time.monotonic()))

    with gate.working():
        began = time.monotonic()
        readers = [asyncio.create_task(read(f"{number}")) for number in range(4)]
        await asyncio.sleep(1.0)
        assert steps  # it goes on, slowly
        done = len(steps)
        assert done <= 8
        assert steps[0][1] - began > 0.2
    await asyncio.wait_for(asyncio.gather(*readers), 10)
    health = (await made.health()).extra
    assert health["held"] >= 2
    assert health["held_seconds"] > 0.5
    assert health["capped"] > 0
    assert health["realtime_live"] == 1.0
    assert max(model.passes) <= 4  # two requests of two rows, while realtime was live
    await made.close()
    gate.close()


async def test_without_the_gate_nothing_waits(tmp_path: Path) -> None:
    gate = GateWriter(tmp_path / "gate")
    made = engine(ToyModel(), gate=False, gate_file=str(tmp_path / "gate"), hold_ms=5000.0)
    await made.open()
    with gate.working():
        async with asyncio.timeout(2.0), aclosing(made.stream(request(steps=8))) as chunks:  # type: ignore[type-var]
            result: list[Any] = [chunk async for chunk in chunks]
    assert len(result) == 10
    assert (await made.health()).extra["held"] == 0
    await made.close()
    gate.close()
