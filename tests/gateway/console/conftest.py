"""Chromium, headless, with a WAV for a microphone, and the console in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from antiphon.codecs import wav
from antiphon.codecs.pcm import SAMPLE_RATE, from_float
from playwright.async_api import BrowserContext, Page, async_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
    "--use-fake-device-for-media-stream",
    "--allow-loopback-in-peer-connection",
)


def chromium() -> str:
    """The browser's program. Debian's package is `chromium`."""
    for name in (os.environ.get("ANTIPHON_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"):
        if name and (path := shutil.which(name)):
            return path
    raise RuntimeError("The console's tests need Chromium: apt-get install chromium, or name one in ANTIPHON_CHROMIUM.")


@dataclass
class Console:
    """A page of the console, and everything that went wrong in it."""

    page: Page
    context: BrowserContext
    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    async def start(self) -> None:
        await self.page.get_by_role("button", name="Start talking").click()
        await self.page.get_by_role("button", name="End", exact=True).wait_for(timeout=20_000)

    async def write(self, text: str) -> None:
        box = self.page.get_by_label("Write to Antiphon")
        await box.fill(text)
        await box.press("Enter")

    async def events(self, filter: str = "") -> list[str]:
        """The types of the events that the inspector shows."""
        await self.page.get_by_label("Filter events").fill(filter)
        await self.page.wait_for_timeout(100)
        titles = await self.page.locator(".event .type").evaluate_all("all => all.map(each => each.title)")
        return list(titles)


OpenConsole = Callable[..., AbstractAsyncContextManager[Console]]


@pytest.fixture
def console(tmp_path: Path) -> OpenConsole:
    """`async with console(url, microphone=pcm, query="model=tone") as it`: the page is open, and closed in the end without faults.

    `microphone` is 24 kHz PCM that is spoken once the page asks for it (then silence); None: there is no microphone;
    "denied": the user says no. Anything that the page's own console calls an error fails the test, unless it holds a text of `expect`.
    """

    @asynccontextmanager
    async def open_console(
        url: str,
        *,
        microphone: bytes | str | None = b"",
        query: str = "model=tone&transport=websocket",
        expect: tuple[str, ...] = (),
        **options: Any,
    ) -> AsyncIterator[Console]:
        flags = list(FLAGS)
        if isinstance(microphone, bytes):
            recording = tmp_path / "microphone.wav"
            wav.write(recording, microphone + bytes(SAMPLE_RATE))
            flags += ["--use-fake-ui-for-media-stream", f"--use-file-for-fake-audio-capture={recording}%noloop"]
        elif microphone == "denied":
            flags.append("--deny-permission-prompts")
        options.setdefault("viewport", {"width": 1440, "height": 900})
        async with async_playwright() as playwright:
            context = await playwright.chromium.launch_persistent_context(
                tmp_path / "profile", executable_path=chromium(), headless=True, args=flags, ignore_default_args=["--mute-audio"], **options
            )
            page = await context.new_page()
            it = Console(page, context)
            page.on("console", lambda message: message.type == "error" and it.faults.append(message.text))
            page.on("pageerror", lambda error: it.faults.append(str(error)))
            page.on("request", lambda request: it.requests.append(request.url))
            if microphone is None:
                await page.add_init_script(
                    "navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('none', 'NotFoundError') }"
                )
            await page.goto(f"{url}/?{query}")
            await page.locator("#server[data-kind]").wait_for()
            yield it
            await context.close()
        assert [fault for fault in it.faults if not any(text in fault for text in expect)] == []

    return open_console


def voice(seconds: float) -> bytes:
    """Something that a browser's noise suppression takes for a voice: a buzz whose pitch and loudness move as in speech."""
    time = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    pitch = 140 + 30 * np.sin(2 * np.pi * 1.3 * time) + 10 * np.sin(2 * np.pi * 3.1 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE
    buzz = sum(np.sin(number * phase) / number for number in range(1, 20))
    syllables = 0.55 + 0.45 * np.sin(2 * np.pi * 4.3 * time)
    return from_float((0.25 * buzz * syllables).astype(np.float32))


def pause(seconds: float) -> bytes:
    return bytes(2 * round(seconds * SAMPLE_RATE))
