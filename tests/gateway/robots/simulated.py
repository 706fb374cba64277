"""Simulated robots, driven by a server while something happens to others: a few of them in a process of their own, as their owner would
have them. The table-top scene, `RobotClient`, one episode after the other; `journal` keeps what happened, `proof` judges it."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from antiphon.clients.robot import ControlSettings, RobotClient
from antiphon.clients.robot.connection import PolicyConnection
from antiphon.clients.robot.errors import RobotError
from antiphon.clients.robot.link import Backoff
from antiphon.codecs import msgpack_numpy
from antiphon.tests.gateway.robots.journal import Acted, Asked, Began, Ended, Journal, Lost, Observed, Opened, Record, Replied, read_journal
from antiphon.tests.gateway.robots.proof import Spell, executed_chunks, spell

LIMIT = 160
"""Control steps of an episode at most."""
REPLY_S = 2.0
"""How long a robot waits for a chunk, which is also the deadline that it names."""

# ---- a robot --------------------------------------------------------------------------------------------------------


class Arm:
    """The table-top scene as a robot (`clients.robot.Robot`), with a journal."""

    def __init__(self, journal: Journal, seed: int) -> None:
        from antiphon.robot.sim.instructions import tabletop_language
        from antiphon.robot.sim.tabletop import TableTop

        self._world = TableTop()
        self._journal = journal
        self._random = random.Random(seed)
        self._plain = tabletop_language().plain
        self._given: Any = None
        self.episode = 0
        self.steps = 0
        self.begin()

    def begin(self) -> None:
        """Another task in another world."""
        self.episode += 1
        self.steps = 0
        task = self._random.choice(self._world.tasks)
        self._prompt = self._plain[task]
        self._world.reset(task, self._random.randrange(1 << 30))
        self._journal.write(Began(time.monotonic(), self.episode, task))

    def say_otherwise(self) -> None:
        """In the middle of it all, another task in the same world."""
        task = self._random.choice(self._world.tasks)
        self._world.retask(task)
        self._prompt = self._plain[task]

    def over(self) -> bool:
        """Has the episode come to its end? Then the journal knows."""
        succeeded = self._world.succeeded()
        if succeeded or self.steps >= LIMIT:
            self._journal.write(Ended(time.monotonic(), succeeded))
            return True
        return False

    def hold(self, observation: Any) -> Any:
        """The owner's action where there is none of the policy."""
        self._given = self._world.hold()
        return self._given

    def observe(self) -> dict[str, Any]:
        state = self._world.observe()
        self._journal.write(Observed(time.monotonic(), state))
        return {"observation/state": state, "prompt": self._prompt}

    def act(self, action: Any) -> None:
        held, self._given = self._given is not None and np.array_equal(self._given, action), None
        self._journal.write(Acted(time.monotonic(), np.array(action), held))
        self._world.step(action)
        self.steps += 1


class TappedConnection:
    """A `PolicyConnection` with the journal's ear at it."""

    def __init__(self, connection: PolicyConnection, journal: Journal) -> None:
        self._connection = connection
        self._journal = journal
        self.policy = connection.policy

    async def send(self, frame: bytes) -> None:
        asked = msgpack_numpy.unpack(frame)
        state = np.array(asked["observation/state"])
        self._journal.write(Asked(time.monotonic(), asked["sequence"], asked["episode"], asked["deadline_ms"] / 1000, state))
        await self._telling(self._connection.send(frame))

    async def receive(self) -> bytes:
        frame: bytes = await self._telling(self._connection.receive())
        reply = msgpack_numpy.unpack(frame)
        actions = reply.get("actions")
        status = "chunk" if actions is not None else reply["status"]
        self._journal.write(Replied(time.monotonic(), reply["echo"], status, None if actions is None else np.array(actions)))
        return frame

    async def _telling(self, doing: Any) -> Any:
        try:
            return await doing
        except RobotError as error:
            self._journal.write(Lost(time.monotonic(), str(error)))
            raise

    async def close(self) -> None:
        await self._connection.close()


class TappedClient(RobotClient):
    """The client as it is, heard at its wire."""

    journal: Journal

    async def _open(self) -> Any:
        connection = TappedConnection(await super()._open(), self.journal)
        self.journal.write(Opened(time.monotonic()))
        return connection


async def drive(url: str, arm: Arm, journal: Journal, *, handover: Any, session_id: str | None, restless: random.Random | None) -> None:
    """Episode after episode until cancelled. `restless`: now and then another prompt, or another episode before this one's end."""

    def between_steps() -> bool:
        if arm.over() or (restless is not None and restless.random() < 0.01):
            arm.begin()
            client.new_episode()
        elif restless is not None and restless.random() < 0.02:
            arm.say_otherwise()
        return False

    client = TappedClient(
        url,
        arm,
        hold=arm.hold,
        stop=arm.hold,
        settings=ControlSettings(handover=handover, hold_limit_s=120.0, reply_timeout_s=REPLY_S, first_timeout_s=REPLY_S),
        session_id=session_id,
        backoff=Backoff(most_s=0.4),
    )
    client.journal = journal
    await client.run(until=between_steps)


async def drive_all(order: dict[str, Any]) -> None:
    """What the robots' process does until it is told to stop."""
    folder = Path(order["folder"])
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    running = []
    for number, handover in enumerate(order["handovers"]):
        journal = Journal(folder / f"{number}.journal")
        seed = order["seed"] * 1000 + number
        restless = random.Random(seed) if order["restless"] else None
        name = f"{order['name']}-{number}" if number % 2 == 0 else None
        arm = Arm(journal, seed)
        running.append(
            asyncio.create_task(
                drive(order["url"], arm, journal, handover=handover, session_id=name, restless=restless), name=f"robot {number}"
            )
        )
    stopping = asyncio.create_task(stop.wait(), name="stop")
    done, _ = await asyncio.wait([*running, stopping], return_when=asyncio.FIRST_COMPLETED)
    for task in running:
        task.cancel()
    results = await asyncio.gather(*running, return_exceptions=True)
    for result in results:
        if not isinstance(result, asyncio.CancelledError):
            raise result if isinstance(result, BaseException) else AssertionError("a robot's control ended by itself")
    assert stopping in done


def main() -> None:
    """The robots' process: its order comes as JSON."""
    asyncio.run(drive_all(json.loads(sys.argv[1])))


class SimulatedRobots:
    """Robots in a process of their own, one for each entry of `handovers`; every other one has a session with a name.

    Use as `with SimulatedRobots(...) as robots`. The end of the block stops them and reads the last of the journals.
    """

    def __init__(
        self,
        server_url: str,
        folder: Path,
        *,
        handovers: Sequence[str] = ("rtc", "switch", "rtc"),
        policy: str = "",
        name: str = "arm",
        seed: int = 1,
        restless: bool = False,
    ) -> None:
        self.folder = folder
        self.robots = len(handovers)
        query = f"?policy={policy}" if policy else ""
        self._order = {
            "url": server_url.replace("http", "ws", 1) + "/v1/realtime/robot/openpi" + query,
            "folder": str(folder),
            "handovers": handovers,
            "name": name,
            "seed": seed,
            "restless": restless,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False

    def __enter__(self) -> SimulatedRobots:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-c", f"from {__name__} import main; main()", json.dumps(self._order)]
        with (self.folder / "robots.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self.wait_for(lambda journal: any(isinstance(record, Acted) and not record.held for record in journal))
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(20)
        if error[0] is None and not self._killed:
            assert code == 0, f"the robots' process ended with {code}: {self.said()}"

    def kill(self) -> float:
        """End them as a power failure would; when that was."""
        assert self._process is not None
        self._killed = True
        self._process.kill()
        gone = time.monotonic()
        self._process.wait(20)
        return gone

    def said(self) -> str:
        """The end of what the process wrote."""
        return (self.folder / "robots.log").read_text(errors="replace")[-2000:]

    def journals(self) -> list[list[Record]]:
        """Each robot's, so far."""
        return [read_journal(self.folder / f"{number}.journal") for number in range(self.robots)]

    def wait_for(self, true: Any, within: float = 60.0) -> None:
        """Until it is true of each robot's journal."""
        assert self._process is not None
        ends = time.monotonic() + within
        while True:
            paths = [self.folder / f"{number}.journal" for number in range(self.robots)]
            if all(path.exists() and true(read_journal(path)) for path in paths):
                return
            assert self._process.poll() is None, f"the robots' process ended with {self._process.returncode}: {self.said()}"
            assert time.monotonic() < ends, f"it did not come about in time: {self.said()}"
            time.sleep(0.1)

    def wait_for_chunks(self, count: int = 2) -> None:
        """Until each has executed actions of so many chunks that were asked for from now on: it goes on."""
        now = time.monotonic()
        self.wait_for(lambda journal: executed_chunks(journal, now) >= count)


def undisturbed(robots: SimulatedRobots, begins: float, ends: float | None = None) -> list[Spell]:
    """Fail unless all robots were driven on as if nothing had happened between two moments (now, if there is no second one). Wall times
    have ten times the room that they need on a quiet machine."""
    ends = time.monotonic() if ends is None else ends
    spells = [spell(journal, begins, ends) for journal in robots.journals()]
    for number, seen in enumerate(spells):
        told = f"robot {number}: {seen}"
        assert not seen.lost, told
        assert not {status for status in seen.answers if status not in ("chunk", "superseded", "fenced")}, told
        assert seen.slowest < 1.0, told
        if seen.seconds > 1:
            assert seen.answers.get("chunk", 0) > 0, told
            assert seen.executed > 0.5 * seen.steps, told
            assert seen.steps > 0.5 * 20 * seen.seconds, told
    return spells
