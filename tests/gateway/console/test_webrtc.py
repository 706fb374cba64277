"""The console's WebRTC calls, in Chromium, with a real server."""

from __future__ import annotations

import re
from typing import Any

from antiphon.tests.gateway.conftest import RunningServer, eventually, serving
from playwright.async_api import expect

from .conftest import OpenConsole, pause, voice
from .test_talk import LONG

STATS = """async () => {
    const stats = {};
    for (const [, each] of await window.antiphonPeer.getStats()) if (each.type === "inbound-rtp") Object.assign(stats, each);
    return stats;
}"""
KEEP_PEER = """
    const Peer = window.RTCPeerConnection;
    window.RTCPeerConnection = class extends Peer { constructor(...options) { super(...options); window.antiphonPeer = this; } };
"""


async def test_a_call_talks_and_is_answered(server: RunningServer, console: OpenConsole) -> None:
    async with console(server.url, microphone=pause(2) + voice(1.5) + pause(8), query="model=tone") as it:
        await it.page.add_init_script(KEEP_PEER)
        await it.page.reload()
        await it.start()
        await expect(it.page.locator(".facts")).to_contain_text("WebRTC")
        await expect(it.page.locator(".line.user .said")).to_contain_text("utterance number 1", timeout=15_000)
        await expect(it.page.locator(".line.assistant .said")).to_contain_text("utterance number 1", timeout=10_000)
        await expect(it.page.locator(".line.assistant .latency")).to_have_text(re.compile(r"\d+ ms|\d\.\d\d s"))
        await expect(it.page.locator(".state")).to_have_text("Listening", timeout=10_000)
        heard: dict[str, Any] = await it.page.evaluate(STATS)
        assert heard["totalAudioEnergy"] > 0.01, "the answer was heard"
        assert heard["packetsLost"] == 0
        assert "input_audio_buffer.append" not in await it.events(""), "audio travels on the track"
        await it.page.get_by_role("button", name="End", exact=True).click()
        await eventually(lambda: len(server.gateway.sessions) == 0)


async def test_a_call_is_interrupted(server: RunningServer, console: OpenConsole) -> None:
    async with console(server.url, microphone=pause(5) + voice(1.8) + pause(8), query="model=tone") as it:
        # Of a tone without gaps the echo canceller takes the user's voice for a part.
        await it.page.get_by_label("I wear headphones").check()
        await it.start()
        await it.write(LONG)
        await expect(it.page.locator(".state")).to_have_text("Speaking", timeout=8_000)
        answer = it.page.locator(".line.assistant").first
        await expect(answer.locator(".unheard s")).to_have_text(re.compile(r"\w+"), timeout=12_000)
        await expect(answer.locator(".note")).to_contain_text("Interrupted")
        heard = await answer.locator(".said > span").first.inner_text()
        assert "one two" in heard
        types = await it.events("")
        assert "conversation.item.truncate" not in types, "the server counts what was heard"
        order = [t for t in types if t in ("output_audio_buffer.started", "output_audio_buffer.cleared", "conversation.item.truncated")]
        # What follows them, on a quick machine, is the answer to the interruption.
        assert order[:3] == ["output_audio_buffer.started", "output_audio_buffer.cleared", "conversation.item.truncated"]
        item = next(item for item in server.gateway.sessions.all()[0].conductor.session.conversation if item.role == "assistant")
        assert item.text == heard.strip()


async def test_the_button_silences_a_call(server: RunningServer, console: OpenConsole) -> None:
    async with console(server.url, query="model=tone") as it:
        await it.start()
        await it.write(LONG)
        await expect(it.page.locator(".state")).to_have_text("Speaking", timeout=8_000)
        await it.page.wait_for_timeout(1500)
        await it.page.keyboard.press("Escape")
        await expect(it.page.locator(".state")).to_have_text("Listening", timeout=3_000)
        await expect(it.page.locator(".assistant .unheard s")).to_have_text(re.compile(r"\w+"), timeout=5_000)


async def test_push_to_talk_in_a_call(server: RunningServer, console: OpenConsole) -> None:
    async with console(server.url, microphone=voice(20), query="model=tone") as it:
        await it.page.get_by_label("Turn taking").select_option("manual")
        await it.start()
        await it.page.wait_for_timeout(500)
        button = it.page.get_by_role("button", name="Hold to talk")
        await button.hover()
        await it.page.mouse.down()
        await expect(it.page.locator(".state")).to_have_text("You are speaking")
        await it.page.wait_for_timeout(1500)
        await it.page.mouse.up()
        await expect(it.page.locator(".line.assistant .said")).to_contain_text("utterance number 1", timeout=10_000)


async def test_a_call_without_a_microphone_and_with_a_key(console: OpenConsole) -> None:
    async with (
        serving(server={"api_keys": ("sesame",)}) as server,
        console(server.url, microphone=None, query="model=tone", expect=("401",)) as it,
    ):
        await it.page.get_by_label("API key").fill("sesame")
        await it.page.get_by_label("Use the microphone").uncheck()
        await it.start()
        await expect(it.page.locator(".facts")).to_contain_text("WebRTC")
        await it.write("good evening")
        await expect(it.page.locator(".line.assistant .said")).to_contain_text("good evening", timeout=8_000)
        await expect(it.page.locator(".state")).to_have_text("Speaking")


async def test_an_operator_ends_a_call(server: RunningServer, console: OpenConsole) -> None:
    async with console(server.url, query="model=tone") as it:
        await it.start()
        await it.page.get_by_role("link", name="Operations").click()
        await it.page.locator(".sessions").get_by_role("button", name="End", exact=True).click()
        await it.page.get_by_role("button", name="Really end?").click()
        await it.page.get_by_role("link", name="Talk").click()
        await expect(it.page.locator(".talk .notice")).to_contain_text("operator ended this", timeout=5_000)
        await expect(it.page.locator(".state")).to_have_text("Not connected")


async def test_where_udp_is_blocked_it_falls_back(server: RunningServer, console: OpenConsole) -> None:
    async with console(server.url, query="model=tone") as it:
        # An answer whose candidates lead nowhere: what a firewall looks like.
        await it.page.route("**/v1/realtime/calls?*", _astray)
        await it.page.get_by_role("button", name="Start talking").click()
        await expect(it.page.locator(".notice.note")).to_contain_text(
            "No WebRTC connection came about. The call uses the WebSocket", timeout=20_000
        )
        await expect(it.page.locator(".facts")).to_contain_text("WebSocket", timeout=10_000)


async def _astray(route: Any) -> None:
    answer = await route.fetch()
    sdp = re.sub(r"(a=candidate:\S+ \d udp \d+) \S+ \d+", r"\1 192.0.2.1 9", await answer.text())
    await route.fulfill(response=answer, body=sdp)
