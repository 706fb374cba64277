"""The robots room, in Chromium, on a real server with a real policy and real connections."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import numpy as np
import pytest
from antiphon.clients.robot import ControlSettings, RobotClient
from antiphon.tests.gateway.conftest import serving
from antiphon.tests.gateway.robots.conftest import PROMPT, STATE, Robot, observation, robot_at, serving_robots
from antiphon.tests.gateway.robots.pace import Pace
from playwright.async_api import Locator, Page, expect

from .conftest import OpenConsole

ROOM = "#/robots"
UNREACHABLE = ("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "Failed to load resource")


def figure(page: Page, title: str) -> Locator:
    return page.locator(".robots .figure").filter(has_text=title).locator("dd").first


def card(page: Page, robot: str) -> Locator:
    return page.locator(".robot").filter(has=page.get_by_role("button", name=robot, exact=True))


async def inked(track: Locator, epoch: int) -> int:
    """How many pixels of a picture have the very colour of an epoch: what the policy was working on."""
    return int(
        await track.evaluate(
            """(canvas, epoch) => {
                const probe = document.createElement("canvas").getContext("2d");
                probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(`--epoch-${epoch}`);
                probe.fillRect(0, 0, 1, 1);
                const wanted = probe.getImageData(0, 0, 1, 1).data;
                const found = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
                let count = 0;
                for (let at = 0; at < found.length; at += 4)
                    count += [0, 1, 2, 3].every((part) => Math.abs(found[at + part] - wanted[part]) < 3);
                return count;
            }""",
            epoch,
        )
    )


async def until_inked(track: Locator, epoch: int) -> None:
    async with asyncio.timeout(8):
        while not await inked(track, epoch):  # noqa: ASYNC110 - asked from outside
            await asyncio.sleep(0.1)


async def pointed(page: Page, track: Locator, text: str, *, height: float, timeout: float = 10) -> str:
    """Move the pointer along a picture at this height (0 the top) until what stands beside it has this text; the whole of it."""
    box = await track.bounding_box()
    assert box is not None
    tip = page.locator(".tip")
    async with asyncio.timeout(timeout):
        while True:
            for x in range(int(box["width"]) - 2, 0, -8):
                await page.mouse.move(box["x"] + x, box["y"] + height)
                if await tip.is_visible() and text in (said := await tip.inner_text()):
                    return said
            await page.mouse.move(0, 0)
            await asyncio.sleep(0.3)


class Arm:
    """A robot that stands still and does what it is told."""

    def __init__(self) -> None:
        self.acted = 0

    def observe(self) -> dict[str, Any]:
        return {"observation/state": STATE, "prompt": PROMPT}

    def act(self, action: Any) -> None:
        self.acted += 1


@asynccontextmanager
async def asking(robot: Robot, pause: float = 0.1, **more: Any) -> AsyncIterator[None]:
    """The robot asks again and again meanwhile."""

    async def ask() -> None:
        sequence = 1000
        while True:
            sequence += 1
            await robot.infer(sequence=sequence, **more)
            await asyncio.sleep(pause)

    task = asyncio.create_task(ask())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_empty_room_says_how_to_connect(console: OpenConsole) -> None:
    async with serving_robots() as server, console(server.url, query=ROOM) as it:
        welcome = it.page.locator(".robots .welcome")
        await expect(welcome).to_contain_text("No robot is connected.")
        address = server.url.replace("http", "ws") + "/v1/realtime/robot/openpi"
        await expect(welcome.locator(".snippet").first).to_contain_text(f'WebsocketClientPolicy("{address}")')
        await expect(welcome).to_contain_text("antiphon robot sim")
        await expect(welcome).to_contain_text("policy tabletop")
        await it.page.get_by_role("button", name="Copy the Python lines").click()
        await expect(welcome.locator(".snippet button").first).to_have_text("Copied")
        async with robot_at(server):
            await expect(it.page.locator(".robot")).to_have_count(1)
            await expect(welcome).to_be_hidden()


async def test_a_server_without_policies_says_so(console: OpenConsole) -> None:
    async with serving(robots={"policies": ()}) as server, console(server.url, query=ROOM) as it:
        await expect(it.page.locator(".robots .welcome")).to_contain_text("robots.policies")


async def test_a_robot_its_chunks_and_its_episodes(console: OpenConsole) -> None:
    """The control loop of a robot's owner, at its own rate."""
    async with serving_robots() as server, console(server.url, query=ROOM) as it:
        hold = np.zeros(4, np.float32)
        client = RobotClient(
            f"{server.url}/v1/realtime/robot/openpi", Arm(), hold=hold, stop=hold, session_id="arm", settings=ControlSettings()
        )
        run = asyncio.create_task(client.run())
        arm = card(it.page, "arm")
        await expect(arm.locator(".prompt")).to_have_text(PROMPT)
        await expect(arm.locator(".policy")).to_have_text("tabletop")
        await expect(arm.locator(".pill")).to_have_text(re.compile("executing|inferring"))
        await expect(arm.locator(".where")).to_contain_text("epoch 1")
        await until_inked(arm.locator(".track"), 1)
        await expect(figure(it.page, "Robots")).to_have_text("1")
        await expect(figure(it.page, "Chunks a second")).to_have_text(re.compile(r"[1-9]\.\d"))
        await expect(figure(it.page, "Round trip, median")).to_have_text(re.compile(r"[\d.]+ m?s"))
        said = await pointed(it.page, arm.locator(".track"), "Chunk", height=20)
        assert re.search(r"epoch 1 · episode \S+ · sequence \d+\s+waited [\d.]+ ms, made in [\d.]+ ms, sent after [\d.]+ ms", said)
        assert "deadline" in said
        await it.page.mouse.move(0, 0)
        await expect(it.page.locator(".tip")).to_be_hidden()

        client.new_episode(outcome="success")
        await expect(arm.locator(".success .value")).to_have_text("1/1")
        await until_inked(arm.locator(".track"), 2)
        client.new_episode(outcome="failure")
        await expect(arm.locator(".success .value")).to_have_text("1/2")
        await expect(figure(it.page, "Success")).to_have_text("50 %")
        await expect(it.page.locator(".robots .figure").filter(has_text="Success")).to_contain_text("1 of 2")
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await expect(arm.locator(".pill")).to_have_text("away, kept for its return")
        await expect(it.page.locator(".robots .figure").filter(has_text="Robots")).to_contain_text("1 away")


async def test_what_went_wrong_is_marked_and_told(console: OpenConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    pace = Pace(monkeypatch)
    async with serving_robots() as server, console(server.url, query=ROOM) as it, robot_at(server, "session_id=arm") as robot:
        await robot.infer(sequence=1)
        await robot.send({"observation/state": STATE[:3], "prompt": PROMPT, "sequence": 2})
        pace.seconds = 0.05
        await robot.send(observation(sequence=3))
        await asyncio.sleep(0.15)
        arm = card(it.page, "arm")
        await expect(arm.locator(".pill")).to_have_text("inferring")
        await robot.send(observation(sequence=4))
        await robot.send(observation(sequence=5, deadline_ms=1))
        for _ in range(4):
            await robot.receive()
        await expect(figure(it.page, "Refused or failed")).to_have_text("1")
        await expect(figure(it.page, "Late")).to_have_text("1")
        await expect(figure(it.page, "Superseded")).to_have_text("1")
        await expect(arm.locator(".troubles")).to_have_text("1 late, 1 superseded, 1 refused")
        track = arm.locator(".track")
        for words in ("refused: something in the request was wrong", "superseded: a newer observation", "late: its deadline"):
            assert "Request" in await pointed(it.page, track, words, height=7)
        await arm.get_by_role("button", name="arm").press("Enter")
        rows = arm.locator(".requests tbody tr")
        await expect(rows).to_have_count(5)
        await expect(rows.locator("td:nth-child(2)")).to_have_text(["late", "superseded", "chunk", "refused", "chunk"])
        assert "1 refused" in (await track.get_attribute("aria-label") or "")


async def test_fences_are_lines_and_epochs_have_colours(console: OpenConsole) -> None:
    async with serving_robots() as server, console(server.url, query=ROOM) as it, robot_at(server, "session_id=arm") as robot:
        await robot.infer(sequence=1)
        track = card(it.page, "arm").locator(".track")
        await until_inked(track, 0)
        await robot.send({"endpoint": "reset"})
        await robot.receive()
        assert await inked(track, 1) == 0
        async with asking(robot):
            await until_inked(track, 1)
            await pointed(it.page, track, "Epoch 1 begins", height=60)


async def test_the_picture_moves_and_stands_while_somebody_points_at_it(console: OpenConsole) -> None:
    async with serving_robots() as server, console(server.url, query=ROOM) as it, robot_at(server, "session_id=arm") as robot:
        track = card(it.page, "arm").locator(".track")
        async with asking(robot):
            await until_inked(track, 0)
            first = await track.evaluate("canvas => canvas.toDataURL()")
            await it.page.wait_for_function("([canvas, first]) => canvas.toDataURL() !== first", arg=[await track.element_handle(), first])
            await track.hover()
            await it.page.wait_for_timeout(200)
            held = await track.evaluate("canvas => canvas.toDataURL()")
            await it.page.wait_for_timeout(500)
            assert await track.evaluate("canvas => canvas.toDataURL()") == held
            await it.page.mouse.move(0, 0)
            await it.page.wait_for_function("([canvas, held]) => canvas.toDataURL() !== held", arg=[await track.element_handle(), held])
            light = await it.page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--epoch-0')")
            await it.page.emulate_media(color_scheme="dark")
            assert await it.page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--epoch-0')") != light
            await until_inked(track, 0)


async def test_a_robot_that_vanishes_is_grey_for_a_while_and_then_gone(console: OpenConsole) -> None:
    async with serving_robots() as server, console(server.url, query=ROOM) as it:
        async with robot_at(server, "session_id=other") as other:
            await other.infer()
            async with robot_at(server) as robot:
                await robot.infer()
                await expect(it.page.locator(".robot")).to_have_count(2)
                robot.socket.transport.abort()
            gone = it.page.locator(".robot.gone")
            await expect(gone).to_have_count(1)
            await expect(gone.locator(".pill")).to_have_text("gone")
            await expect(it.page.locator("#announcer")).to_contain_text("1 robot connected.")
            await expect(gone).to_have_count(0, timeout=10_000)
            await expect(it.page.locator(".robot")).to_have_count(1)
        for _ in range(2):  # one of the same name is another robot
            await server.gateway.robots.close()
            async with robot_at(server, "session_id=other") as other:
                await other.infer()
                await other.send({"endpoint": "reset"})
                await other.receive()
                await expect(card(it.page, "other").locator(".where")).to_have_text("epoch 1")
                await expect(it.page.locator(".robot:not(.gone)")).to_have_count(1)


async def test_thirty_robots_get_a_line_each_and_the_page_stays_quick(console: OpenConsole) -> None:
    async with serving_robots() as server, console(server.url, query=ROOM) as it, AsyncExitStack() as stack:
        robots = [await stack.enter_async_context(robot_at(server, f"session_id=arm-{number:02}")) for number in range(30)]
        async with AsyncExitStack() as work:
            for robot in robots:
                await work.enter_async_context(asking(robot, 0.5))
            await expect(it.page.locator(".robots.compact .robot")).to_have_count(30)
            await expect(figure(it.page, "Robots")).to_have_text("30")
            await until_inked(card(it.page, "arm-00").locator(".track"), 0)
            heights = await it.page.locator(".robot").evaluate_all("rows => rows.map((row) => row.clientHeight)")
            assert max(heights) < 50, "a line each"
            await card(it.page, "arm-29").scroll_into_view_if_needed()
            await until_inked(card(it.page, "arm-29").locator(".track"), 0)
            frames = await it.page.evaluate(
                """async () => {
                    const until = performance.now() + 2000;
                    let frames = 0;
                    while (performance.now() < until) {
                        await new Promise(requestAnimationFrame);
                        frames++;
                    }
                    return frames;
                }"""
            )
            assert frames > 12, "of 120"
        await it.page.set_viewport_size({"width": 390, "height": 800})
        assert await it.page.evaluate("[document.documentElement.scrollWidth, document.querySelector('.robots').scrollWidth]") == [390, 390]


async def test_names_and_prompts_are_text_and_stay_in_their_place(console: OpenConsole) -> None:
    name = "<b>" * 40
    async with serving_robots() as server, console(server.url, query=ROOM) as it, robot_at(server, f"session_id={name}") as robot:
        await robot.infer(prompt="<script>alert(1)</script> " * 10, episode="e" * 128)
        await expect(it.page.locator(".robot .prompt")).to_contain_text("<script>")
        await expect(it.page.locator(".robot .id")).to_have_text(name)
        for width in (1440, 390):
            await it.page.set_viewport_size({"width": width, "height": 800})
            inner, page = await it.page.evaluate("[document.querySelector('.robots').scrollWidth, document.documentElement.scrollWidth]")
            assert inner <= page == width
            assert await it.page.locator(".robot").evaluate("card => card.scrollWidth <= card.clientWidth")


async def test_the_server_is_away_and_comes_back(console: OpenConsole) -> None:
    async with serving_robots() as server, console(server.url, query=ROOM, expect=UNREACHABLE) as it:
        async with robot_at(server, "session_id=arm") as robot:
            await robot.infer()
            await expect(card(it.page, "arm").locator(".prompt")).to_have_text(PROMPT)
        server.stop.set()
        await server.task
        notice = it.page.locator(".robots .notice")
        await expect(notice).to_contain_text("The server does not answer.")
        await expect(it.page.locator("#server")).to_have_text("No answer")
        await expect(card(it.page, "arm")).to_be_visible()
        async with serving_robots(port=int(server.url.rpartition(":")[2])) as again, robot_at(again, "session_id=arm") as robot:
            await expect(notice).to_be_hidden(timeout=12_000)
            await expect(it.page.locator("#server")).to_have_text("Server ready")
            async with asking(robot):
                await until_inked(card(it.page, "arm").locator(".track"), 0)
            await expect(it.page.locator(".robot")).to_have_count(1)


async def test_nobody_asks_while_nobody_looks(console: OpenConsole) -> None:
    async with serving_robots() as server, console(server.url, query=ROOM) as it, robot_at(server, "session_id=arm") as robot:
        await expect(card(it.page, "arm")).to_be_visible()
        before = sum("/v1/robots" in url for url in it.requests)
        await it.page.wait_for_timeout(1000)
        assert 1 <= sum("/v1/robots" in url for url in it.requests) - before <= 5
        await it.page.get_by_role("link", name="Operations").click()
        await expect(it.page.locator(".sessions tbody")).to_contain_text("tabletop")
        asked = sum("/v1/robots" in url for url in it.requests)
        await it.page.wait_for_timeout(1000)
        assert sum("/v1/robots" in url for url in it.requests) == asked
        await robot.infer()
        await it.page.get_by_role("link", name="Robots").click()
        await until_inked(card(it.page, "arm").locator(".track"), 0)


async def test_with_reduced_motion_it_is_drawn_when_there_is_news(console: OpenConsole) -> None:
    async with (
        serving_robots() as server,
        console(server.url, query=ROOM, reduced_motion="reduce") as it,
        robot_at(server) as robot,
        asking(robot),
    ):
        await until_inked(it.page.locator(".track"), 0)


async def test_it_says_that_it_needs_a_key(console: OpenConsole) -> None:
    async with serving_robots(server={"api_keys": ("sesame",)}) as server, console(server.url, query=ROOM, expect=("401",)) as it:
        await expect(it.page.locator(".robots .notice")).to_contain_text("wants a good API key")
        await expect(it.page.locator("#server")).to_have_text("Key needed")
