"""Replies, read; and whether they answer what was asked."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import numpy as np
import pytest
from antiphon.clients.robot import PolicyUnreachable
from antiphon.clients.robot.connection import policy_url
from antiphon.clients.robot.link import Backoff, Link, Outgoing
from antiphon.clients.robot.policy import PolicyInfo
from antiphon.clients.robot.replies import EchoGuard, Reply, read_reply
from antiphon.codecs import msgpack_numpy


def test_chunks_of_openpi_and_of_vllm_omni() -> None:
    actions = np.ones((4, 2), np.float32)
    for message in (actions, {"actions": actions, "state": np.zeros(3)}):
        assert np.array_equal(read_reply(msgpack_numpy.pack(message)).actions, actions)


def test_a_reply_without_a_chunk_says_why() -> None:
    late = read_reply(msgpack_numpy.pack({"status": "late", "code": "late", "message": "too slow", "echo": {"sequence": 3}}))
    assert (late.actions, late.status, late.message) == (None, "late", "too slow")
    assert read_reply(msgpack_numpy.pack({"error": "broken"})).message == "broken"
    for garbage in (b"", b"\xc1", msgpack_numpy.pack(5)):
        with pytest.raises(PolicyUnreachable):
            read_reply(garbage)


def test_a_reply_must_answer_the_request_that_was_made() -> None:
    def reply(**echo: Any) -> Reply:
        return Reply(actions=1, echo=echo)

    guard = EchoGuard()
    assert guard.check(Reply(actions=1), 1, "a"), "who echoes nothing is taken at his word"
    assert guard.check(reply(sequence=2, epoch=4, episode="a"), 2, "a")
    assert not guard.check(reply(sequence=3, epoch=4, episode="a"), 3, "b"), "of another episode"
    assert not guard.check(reply(sequence=4, epoch=3, episode="a"), 4, "a"), "of an epoch that is over"
    with pytest.raises(PolicyUnreachable, match="answered request 4"):
        guard.check(reply(sequence=4, epoch=4), 5, "a")


def test_metadata_of_any_kind() -> None:
    assert PolicyInfo.of(None) == PolicyInfo.of({}) == PolicyInfo.of({"action_horizon": True, "control_hz": "fast"}) == PolicyInfo()
    assert PolicyInfo.of({"action_low": [0.0, float("nan")], "max_prefix": 4}) == PolicyInfo()
    full = PolicyInfo.of({"session": {}, "action_horizon": 16, "control_hz": 20, "max_prefix": 8, "action_low": [-1, -1]})
    assert (full.marks, full.horizon, full.rate, full.max_prefix, full.low) == (True, 16, 20.0, 8, (-1.0, -1.0))
    assert PolicyInfo.of_record(full.record()) == full


def test_addresses() -> None:
    assert policy_url("127.0.0.1:8000") == "ws://127.0.0.1:8000"
    assert policy_url("https://host/a?policy=p", session_id="arm 1", anew=True) == "wss://host/a?policy=p&session_id=arm+1&reset=true"


def test_the_backoff_grows_to_its_limit() -> None:
    waits = [Backoff(first_s=0.1, most_s=5.0).wait(failures, random.Random(1)) for failures in range(1, 100)]
    assert 0.05 <= waits[0] <= 0.1
    assert max(waits) <= 5.0
    assert min(waits[10:]) >= 2.5


class Told:
    """Listens to a link, and is the connection, too: `frame` is what comes."""

    policy = PolicyInfo()

    def __init__(self) -> None:
        self.frame: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.sent = asyncio.Event()
        self.replies: list[int] = []
        self.closed = asyncio.Event()

    def opened(self, policy: PolicyInfo) -> None:
        pass

    def replied(self, sequence: int, frame: bytes) -> bool:
        self.replies.append(sequence)
        return True

    def lost(self, error: PolicyUnreachable | None) -> None:
        pass

    async def send(self, frame: bytes) -> None:
        self.sent.set()

    async def receive(self) -> bytes:
        return await self.frame

    async def close(self) -> None:
        self.closed.set()


@pytest.mark.parametrize("renew", [True, False])
async def test_a_reply_that_comes_as_its_request_is_given_up_is_not_heard(renew: bool) -> None:
    told = Told()

    async def open_() -> Any:
        return told

    link = Link(open_, told, Backoff(), random.Random(1))
    task = asyncio.create_task(link.run())
    await asyncio.sleep(0)
    link.send(Outgoing(sequence=7, frame=b"", timeout_s=5.0))
    with pytest.raises(RuntimeError, match="on its way"):
        link.send(Outgoing(sequence=8, frame=b"", timeout_s=5.0))
    await told.sent.wait()
    told.frame.set_result(b"")
    if renew:
        assert link.renew()
    async with asyncio.timeout(5):
        await told.closed.wait()
    assert told.replies == ([] if renew else [7])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
