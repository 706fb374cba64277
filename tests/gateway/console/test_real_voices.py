"""A person talks with the real models on the console's page, over WebRTC, and interrupts."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from antiphon.tests.gateway.conftest import serving
from playwright.async_api import expect

from .conftest import OpenConsole, pause


@pytest.mark.timeout(240)
async def test_a_conversation(default_weights: None, console: OpenConsole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with serving(server={"pipelines": ("voice",)}) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60, trust_env=False) as http:

            async def say(text: str) -> bytes:
                body = {"model": "voice", "input": text, "voice": "heart", "response_format": "pcm"}
                return (await http.post("/v1/audio/speech", json=body)).raise_for_status().content

            asked = await say("Hello! Tell me a long story about a lighthouse.")
            stopped = await say("Wait, stop. What is your name?")
        async with console(server.url, microphone=pause(1.5) + asked + pause(9) + stopped + pause(20), query="model=voice") as it:
            await it.start()
            first = it.page.locator(".line.user").first.locator(".said")
            await expect(first).to_contain_text(re.compile("lighthouse", re.IGNORECASE), timeout=30_000)
            answer = it.page.locator(".line.assistant")
            await expect(answer.first.locator(".said")).to_have_text(re.compile(r"\w+ \w+"), timeout=30_000)
            await expect(answer.first.locator(".unheard s")).to_have_text(re.compile(r"\w+"), timeout=30_000)
            await expect(it.page.locator(".line.user .said").filter(has_text=re.compile("stop", re.IGNORECASE))).to_have_count(
                1, timeout=30_000
            )
            await expect(answer).not_to_have_count(1, timeout=30_000)
            await expect(it.page.locator(".turns-panel .piece")).not_to_have_count(0)
            session = server.gateway.sessions.all()[0].conductor.session
            heard = await answer.first.locator(".said > span").first.inner_text()
            assert next(item for item in session.conversation if item.role == "assistant").text == heard.strip()
