"""The fleet scenario: what its robots count, what is made of it, and its plain server."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from antiphon.engines.action.card import load_card
from antiphon.engines.action.flow_model import FlowModel
from antiphon.engines.action.serial import SerialPolicy
from antiphon.engines.messages import ActBody, Array
from antiphon.scenarios.robots.fleet import WEIGHTS, record
from antiphon.scenarios.robots.fleet_blocks import Block, Order, Peer, Recorded, run_block
from antiphon.scenarios.robots.fleet_figures import OURS, PLAIN, aims, figures, find, gather
from antiphon.scenarios.robots.fleet_peer import fetch_peer, plain_server
from antiphon.scenarios.robots.fleet_plot import draw
from antiphon.tests.gateway.conftest import serving

POLICY = {"tabletop": {"kind": "flow-policy", "options": {"model": "tabletop"}}}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("fleet") / "observations.npz"
    record(file, "tabletop")
    return file


def order(peer: Peer, file: Path, seconds: float = 1.0) -> Order:
    return Order(peers=(peer,), robots=(3,), observations=str(file), seconds=seconds, rounds=1, period_s=0.05)


def block(peer: str, robots: int, pace: Any, trips: list[float], **more: Any) -> Block:
    return Block(peer=peer, robots=robots, pace=pace, seconds=2.0, asked=len(trips), chunks=len(trips), trips=trips, **more)


def test_robots_see_different_things(recorded: Path) -> None:
    observations = Recorded(recorded)
    assert len(observations) == 256
    requests = {observations.request(index, {}) for index in range(len(observations))}
    assert len(requests) > 250


async def test_robots_ask_our_server_at_their_own_pace_and_as_fast_as_they_can(recorded: Path) -> None:
    async with serving(engines=POLICY, robots={"policies": ("tabletop",)}) as server:
        peer = Peer(OURS, server.url.replace("http", "ws", 1) + "/v1/realtime/robot/openpi", os.getpid())
        asked = order(peer, recorded)
        paced = await run_block(asked, peer, 3, "paced", Recorded(recorded))
        fast = await run_block(asked, peer, 3, "saturated", Recorded(recorded))
    assert paced.asked + paced.skipped in range(57, 64), "three robots, twenty times a second"
    assert paced.chunks + sum(paced.refused.values()) == paced.asked
    assert (paced.lost, fast.lost) == (0, 0)
    assert len(paced.batches) == paced.chunks, "our server says how many robots shared the steps"
    assert fast.chunks > paced.chunks
    assert max(fast.batches) > 1.5
    assert paced.server_cpu > 0


async def test_robots_ask_openpis_own_server_too(recorded: Path, tmp_path: Path) -> None:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "antiphon" / "openpi-server-0.1.0"
    await fetch_peer(cache)
    async with plain_server(WEIGHTS / "tabletop", cache, tmp_path / "plain.log") as (url, pid):
        peer = Peer(PLAIN, url, pid)
        found = await run_block(order(peer, recorded), peer, 3, "saturated", Recorded(recorded))
    assert found.lost == 0
    assert found.chunks == found.asked > 10
    assert found.batches == [], "it serves one robot after the other and says nothing of batches"


def test_the_plain_policy_computes_what_ours_does() -> None:
    """Averaged over noise: it draws its own."""
    folder = WEIGHTS / "tabletop"
    plain, card = SerialPolicy(folder), load_card(folder)
    ours = FlowModel.load(folder, card)
    state = np.array([0, 0, 0.15, 0, 0, 0, 0, -0.1, -0.1, 0.02, 0, -0.1, 0.02, 0.1, -0.1, 0.02, -0.15, 0.1, 0.15, 0.1], np.float32)
    prompt = "put the red cube on the white pad"
    theirs = np.mean([plain.infer({"observation/state": state, "prompt": prompt})["actions"] for _ in range(40)], 0)
    rows = [ours.prepare(ActBody(observation={"observation/state": Array.of(state)}, prompt=prompt), seed) for seed in range(40)]
    ours.begin(rows)
    for _ in range(card.steps):
        ours.advance(rows)
    mine = np.mean([ours.finish(row) for row in rows], 0)
    assert theirs.shape == mine.shape == (16, 4)
    assert np.abs(theirs[:8] - mine[:8]).mean() < 0.1


def test_blocks_of_a_kind_are_pooled_and_judged(tmp_path: Path) -> None:
    blocks = []
    for robots in (1, 16):
        blocks += [
            block(OURS, robots, "paced", [4.0, 5.0, 6.0], batches=[1.0, 2.0, 3.0]),
            block(OURS, robots, "paced", [5.0], server_cpu=0.004),
            block(PLAIN, robots, "paced", [5.0] * 4, late=2, skipped=1),
            block(OURS, robots, "saturated", [8.0] * 900),
            block(PLAIN, robots, "saturated", [40.0] * 100),
        ]
    measured = gather(blocks)
    ours = find(measured, OURS, 16, "paced")
    assert ours is not None
    assert (ours.p50, ours.asked, ours.batch, ours.cpu) == (5.0, 4, 2.0, 1.0)
    rows = figures(measured)
    assert aims(rows) == []
    assert {row.name: row.value for row in rows}["chunks a second over plain, 16 robots"] == "9.0 x"
    draw(tmp_path / "fleet.png", measured)
    assert (tmp_path / "fleet.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("worse", "sentence"),
    [
        (block(OURS, 1, "paced", [9.0] * 20), "round trip over plain"),
        (block(OURS, 16, "saturated", [9.0]), "chunks a second over plain"),
        (block(OURS, 16, "paced", [9.0], late=1), "late or never asked for"),
        (block(OURS, 16, "paced", [9.0], lost=1), "connections lost"),
    ],
)
def test_an_aim_that_is_missed_is_said(worse: Block, sentence: str) -> None:
    blocks = [worse]
    for peer, chunks in ((OURS, 500), (PLAIN, 100)):
        blocks += [block(peer, 1, "paced", [5.0]), block(peer, 16, "paced", [5.0])]
        if (worse.peer, worse.pace) != (peer, "saturated"):
            blocks.append(block(peer, 16, "saturated", [5.0] * chunks))
    assert any(sentence in said for said in aims(figures(gather(blocks))))


async def test_a_server_that_goes_away_counts_as_lost(recorded: Path) -> None:
    async with serving(engines=POLICY, robots={"policies": ("tabletop",)}, server={"drain_s": 0.1}) as server:
        peer = Peer(OURS, server.url.replace("http", "ws", 1) + "/v1/realtime/robot/openpi", os.getpid())
        running = asyncio.create_task(run_block(order(peer, recorded, 3.0), peer, 2, "saturated", Recorded(recorded)))
        await asyncio.sleep(1.0)
        server.stop.set()
        found = await running
    assert found.lost == 2
