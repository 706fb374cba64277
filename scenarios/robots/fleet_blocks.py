"""The robots of a fleet, in a process of their own: blocks of requests against one server after the other, in turn.

`python -m antiphon.scenarios.robots.fleet_blocks` reads an `Order` from stdin and prints a `Block` a line. A block is either paced (each
robot asks once a period, at its own phase, and leaves a period out while its last request is unanswered) or as fast as the answers come.
The servers take turns within each round, so that whatever else the machine does disturbs them alike. Answers are read when a block
is over: a robot costs as little as may be while it counts.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from ...clients.robot.connection import PolicyConnection, open_connection
from ...clients.robot.errors import PolicyUnreachable
from ...codecs import msgpack_numpy
from ..processes import measure

Pace = Literal["paced", "saturated"]
SETTLE_S = 0.2
"""Of each block that do not count."""
PATIENCE_S = 5.0


class Peer(msgspec.Struct, frozen=True):
    """A server to ask."""

    name: str
    url: str
    pid: int


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What to do. `observations` is a file of `save_observations`; `seconds` a block, of which `rounds` are made of each kind."""

    peers: tuple[Peer, ...]
    robots: tuple[int, ...]
    observations: str
    seconds: float
    rounds: int
    period_s: float
    api_key: str | None = None


class Block(msgspec.Struct, kw_only=True):
    """What came of a block. Times in milliseconds. `trips`: from request to chunk, of the chunks that came. `late`: of `asked`, how many
    had no chunk within a period. `skipped`: periods at which nothing was asked, since the last answer was still to come. `lost`: robots
    whose connection failed. `refused`: answers without a chunk, by status. `batches`: what the server says of each chunk, if it does."""

    peer: str
    robots: int
    pace: Pace
    seconds: float = 0.0
    asked: int = 0
    chunks: int = 0
    late: int = 0
    skipped: int = 0
    lost: int = 0
    trips: list[float] = msgspec.field(default_factory=list)
    refused: dict[str, int] = msgspec.field(default_factory=dict)
    batches: list[float] = msgspec.field(default_factory=list)
    server_cpu: float = 0.0
    own_cpu: float = 0.0
    own_late: float = 0.0
    """The 99th percentile of how late this process's robots were with a paced request."""


class Recorded:
    """Observations made before, as requests."""

    def __init__(self, file: Path) -> None:
        with np.load(file, allow_pickle=False) as arrays:
            found = {key: arrays[key] for key in arrays.files}
        self._prompts = [str(prompt) for prompt in found.pop("prompt")]
        self._arrays = found

    def __len__(self) -> int:
        return len(self._prompts)

    def request(self, index: int, marks: dict[str, Any]) -> bytes:
        """The packed request of an observation, with these optional fields."""
        at = index % len(self)
        return msgpack_numpy.pack({**{key: array[at] for key, array in self._arrays.items()}, "prompt": self._prompts[at], **marks})


class Robot:
    """One connection; at most one request on its way, as openpi's protocol has it."""

    def __init__(self, connection: PolicyConnection, recorded: Recorded, number: int) -> None:
        self.connection = connection
        self.answers: list[tuple[float, float, bytes]] = []
        """(asked, answered, answer) in seconds on the monotonic clock."""
        self.skipped: list[float] = []
        self.lateness: list[float] = []
        self._recorded = recorded
        self._number = number
        self._sequence = 0

    async def ask(self, deadline_ms: float | None) -> None:
        """One request and its answer. Servers that do not know the marks are not sent any. Raises `PolicyUnreachable`."""
        marks: dict[str, Any] = {}
        if self.connection.policy.marks:
            marks["sequence"] = self._sequence
            if deadline_ms is not None:
                marks["deadline_ms"] = deadline_ms
        request = self._recorded.request(17 * self._number + self._sequence, marks)
        self._sequence += 1
        asked = time.monotonic()
        await self.connection.send(request)
        async with asyncio.timeout(PATIENCE_S):
            answer = await self.connection.receive()
        self.answers.append((asked, time.monotonic(), answer))

    async def saturate(self, until: float) -> None:
        """Ask as soon as the answer is there."""
        while time.monotonic() < until:
            await self.ask(None)

    async def keep_pace(self, first: float, period: float, until: float) -> None:
        """Ask once a period, from `first` on."""
        due = first
        while due < until:
            await asyncio.sleep(due - time.monotonic())
            self.lateness.append(time.monotonic() - due)
            await self.ask(period * 1000)
            due += period
            while due < time.monotonic():
                self.skipped.append(due)
                due += period


async def run_block(order: Order, peer: Peer, robots: int, pace: Pace, recorded: Recorded) -> Block:
    """Connect so many robots, have them ask for a while, see what came of it."""
    connections = [
        await open_connection(peer.url, api_key=order.api_key, session_id=None, anew=False, timeout=PATIENCE_S) for _ in range(robots)
    ]
    fleet = [Robot(connection, recorded, number) for number, connection in enumerate(connections)]
    block = Block(peer=peer.name, robots=robots, pace=pace)
    begin = time.monotonic()
    start, end = begin + SETTLE_S, begin + SETTLE_S + order.seconds
    phases = random.Random(robots)
    if pace == "paced":
        work = [robot.keep_pace(begin + phases.random() * order.period_s, order.period_s, end) for robot in fleet]
    else:
        work = [robot.saturate(end) for robot in fleet]
    tasks = [asyncio.create_task(one) for one in work]
    await asyncio.sleep(start - time.monotonic())
    before, own = measure(peer.pid).cpu, time.process_time()
    await asyncio.sleep(end - time.monotonic())
    block.server_cpu, block.own_cpu = measure(peer.pid).cpu - before, time.process_time() - own
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, PolicyUnreachable | TimeoutError):
            block.lost += 1
        elif isinstance(result, BaseException):
            raise result
    for connection in connections:
        with suppress(PolicyUnreachable):
            await connection.close()
    _count(block, fleet, start, end, order.period_s)
    return block


def _count(block: Block, fleet: list[Robot], start: float, end: float, period: float) -> None:
    """Read the answers of what was asked (or, without a pace, answered) between `start` and `end`."""
    block.seconds = end - start
    for robot in fleet:
        for asked, answered, answer in robot.answers:
            if not start <= (asked if block.pace == "paced" else answered) < end:
                continue
            block.asked += 1
            reply = msgpack_numpy.unpack(answer)
            if "actions" in reply:
                block.chunks += 1
                block.trips.append((answered - asked) * 1000)
                block.late += block.pace == "paced" and answered - asked > period
                if "batch" in reply.get("policy_timing", {}):
                    block.batches.append(float(reply["policy_timing"]["batch"]))
            else:
                status = str(reply.get("status"))
                block.refused[status] = block.refused.get(status, 0) + 1
                block.late += block.pace == "paced"
        block.skipped += sum(start <= at < end for at in robot.skipped)
    lateness = sorted(each for robot in fleet for each in robot.lateness)
    block.own_late = lateness[int(0.99 * (len(lateness) - 1))] * 1000 if lateness else 0.0


async def _obey(order: Order) -> None:
    recorded = Recorded(Path(order.observations))
    for robots in order.robots:
        for pace in ("paced", "saturated"):
            for number in range(order.rounds):
                turns = order.peers if number % 2 == 0 else order.peers[::-1]
                for peer in turns:
                    block = await run_block(order, peer, robots, pace, recorded)
                    sys.stdout.buffer.write(msgspec.json.encode(block) + b"\n")
                    sys.stdout.buffer.flush()


def main() -> None:
    """See the module's docstring."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    try:
        import uvloop
    except ImportError:
        asyncio.run(_obey(order))
        return
    uvloop.run(_obey(order))


if __name__ == "__main__":
    main()
