"""What the console says when something is wrong: what happened, and what to do."""

from __future__ import annotations

import asyncio

import pytest
from antiphon.tests.gateway.conftest import connected, serving
from playwright.async_api import expect

from .conftest import OpenConsole

# What the browser itself writes into its console about a request that was refused.
REFUSED = ("WebSocket", "Failed to load resource", "ERR_CONNECTION_REFUSED")


async def test_the_microphone_is_not_allowed(console: OpenConsole) -> None:
    async with serving() as server, console(server.url, microphone="denied") as it:
        await it.page.get_by_role("button", name="Start talking").click()
        await expect(it.page.locator(".notice")).to_contain_text("Allow the microphone in the address bar")
        await expect(it.page.get_by_role("button", name="Start talking")).to_be_enabled()


async def test_the_server_is_full(console: OpenConsole) -> None:
    async with serving(registry={"capacity": 1, "waiting": 0}) as server, connected(server), console(server.url, expect=REFUSED) as it:
        await it.page.get_by_role("button", name="Start talking").click()
        await expect(it.page.locator(".notice")).to_contain_text("Every place on this server is taken. Try again in 5 seconds.")


async def test_the_server_drains_while_one_talks(console: OpenConsole) -> None:
    async with serving() as server, console(server.url, expect=REFUSED) as it:
        await it.start()
        server.stop.set()
        await expect(it.page.locator(".notice").last).to_contain_text("The server shut down. Connect again in a few seconds", timeout=8_000)
        await expect(it.page.locator(".state")).to_have_text("Not connected")
        async with asyncio.timeout(10):
            await server.task
        await it.page.get_by_role("button", name="Start talking").click()
        await expect(it.page.locator(".notice")).to_contain_text("The server does not answer. Check that it is running", timeout=8_000)


async def test_the_server_drains_before_one_connects(console: OpenConsole) -> None:
    async with serving() as server, console(server.url, expect=REFUSED) as it:
        server.gateway.draining = True
        await it.page.get_by_role("button", name="Start talking").click()
        await expect(it.page.locator(".notice")).to_contain_text(
            "shutting down and takes no new calls. If it restarts, connect again in 5 seconds."
        )


async def test_an_operator_ends_the_call(console: OpenConsole) -> None:
    async with serving() as server, console(server.url) as it:
        await it.start()
        await it.page.get_by_role("link", name="Operations").click()
        await it.page.locator(".sessions").get_by_role("button", name="End", exact=True).click()
        await it.page.get_by_role("button", name="Really end?").click()
        await expect(it.page.get_by_text("Nobody is talking right now.")).to_be_visible(timeout=5_000)
        await it.page.get_by_role("link", name="Talk").click()
        await expect(it.page.locator(".talk .notice")).to_contain_text("An operator ended this call.")


async def test_the_session_expires(console: OpenConsole) -> None:
    async with serving(registry={"idle_s": 2.0, "warn_s": 1.0}) as server, console(server.url, microphone=None) as it:
        await it.page.get_by_label("Use the microphone").uncheck()
        await it.start()
        await expect(it.page.locator(".notice.note")).to_contain_text("ends in", timeout=6_000)
        await expect(it.page.locator(".notice.problem")).to_contain_text("Connect again to go on talking.", timeout=6_000)


@pytest.mark.parametrize("status", [404, 405])
async def test_without_webrtc_it_falls_back_and_says_so(console: OpenConsole, status: int) -> None:
    async with serving() as server, console(server.url, query="model=tone", expect=REFUSED) as it:
        await it.page.route("**/v1/realtime/calls*", lambda route: route.fulfill(status=status, body="{}"))
        await it.start()
        await expect(it.page.locator(".notice.note")).to_contain_text(
            "This server takes no WebRTC calls. The call uses the WebSocket instead."
        )
        await expect(it.page.locator(".facts")).to_contain_text("WebSocket")


async def test_a_refused_setting_is_shown_and_the_call_goes_on(console: OpenConsole) -> None:
    async with serving() as server, console(server.url) as it:
        await it.page.get_by_label("Voice").fill("x" * 3000)
        await it.start()
        await expect(it.page.locator(".notice")).to_contain_text("The server refused something.")
        await it.write("good evening")
        await expect(it.page.locator(".line.assistant .said")).to_contain_text("good evening", timeout=8_000)
