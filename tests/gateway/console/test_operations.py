"""The operations room."""

from __future__ import annotations

import re

from antiphon.tests.gateway.conftest import RunningServer, connected, serving
from playwright.async_api import expect

from .conftest import OpenConsole


async def test_it_shows_sessions_and_engines(server: RunningServer, console: OpenConsole) -> None:
    async with connected(server) as caller, console(server.url, query="model=tone#/operations") as it:
        await caller.ask("good evening")
        await caller.until("response.done")
        row = it.page.locator(".sessions tbody tr").first
        await expect(row).to_contain_text("sess_")
        await expect(row.locator(".pill")).to_have_text(re.compile("idle|speaking|thinking"))
        await expect(it.page.locator(".figures")).to_contain_text("1 / 64")
        engines = it.page.locator(".engines tbody th")
        await expect(engines).to_have_count(4)
        await row.get_by_role("button", name="sess_").click()
        await expect(it.page.locator(".more .piece")).not_to_have_count(0)
        second = await it.context.new_page()
        await second.goto(f"{server.url}/#/nonsense")
        await expect(second.get_by_role("button", name="Start talking")).to_be_visible()


async def test_it_asks_ever_more_rarely_when_nobody_answers(console: OpenConsole) -> None:
    async with serving() as server, console(server.url, query="#/operations", expect=("Failed to load",)) as it:
        await expect(it.page.locator(".figures")).to_contain_text("0 / 64")
        asked: list[str] = []
        it.page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/health") else None)
        await it.page.route("**/health", lambda route: route.abort())
        await expect(it.page.locator(".operations .notice")).to_contain_text("The server does not answer.", timeout=6_000)
        before = len(asked)
        await it.page.wait_for_timeout(7_000)
        assert len(asked) - before <= 2, "2 s, then 4 s, then 8 s"
        await it.page.unroute("**/health")
        await expect(it.page.locator(".operations .notice")).to_be_hidden(timeout=12_000)


async def test_it_says_that_it_needs_a_key(console: OpenConsole) -> None:
    async with serving(server={"api_keys": ("sesame",)}) as server, console(server.url, query="#/operations", expect=("401",)) as it:
        await expect(it.page.locator(".operations .notice")).to_contain_text("wants a good API key")
        await expect(it.page.locator("#server")).to_have_text("Key needed")
