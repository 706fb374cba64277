"""Talking on the console's page, in Chromium, with a real server."""

from __future__ import annotations

import itertools
import re

from antiphon.tests.gateway.conftest import RunningServer, serving
from playwright.async_api import expect

from .conftest import OpenConsole, pause, voice

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty"
"""Takes the tone engine more than eight seconds to say."""


async def test_it_talks_and_is_answered(server: RunningServer, console: OpenConsole) -> None:
    async with console(server.url, microphone=pause(1) + voice(1.5) + pause(6)) as it:
        await it.start()
        await expect(it.page.locator(".line.user .said")).to_contain_text("utterance number 1", timeout=15_000)
        await expect(it.page.locator(".line.assistant .said")).to_contain_text("utterance number 1", timeout=10_000)
        await expect(it.page.locator(".line.assistant .latency")).to_have_text(re.compile(r"\d+ ms|\d\.\d\d s"))
        await expect(it.page.locator(".turns-panel .piece")).not_to_have_count(0)
        await expect(it.page.locator(".turns-panel .summary")).to_contain_text("timed by the server")
        await expect(it.page.locator("#announcer")).to_contain_text("Antiphon: This is utterance number 1.")
        await expect(it.page.locator(".state")).to_have_text("Listening", timeout=10_000)
        sent = await it.events("append")
        assert set(sent) == {"input_audio_buffer.append"}
        assert all(request.startswith((server.url, "ws:", "blob:", "data:")) for request in it.requests), (
            "nothing is asked of other servers"
        )
        await it.page.get_by_role("button", name="End", exact=True).click()
        await expect(it.page.locator(".state")).to_have_text("Not connected")
    assert not server.gateway.sessions.all() or server.gateway.sessions.all()[0].conductor.session.closed


async def test_it_is_interrupted_and_strikes_out_what_was_not_heard(server: RunningServer, console: OpenConsole) -> None:
    async with console(server.url, microphone=pause(4) + voice(1.6) + pause(6)) as it:
        await it.start()
        await it.write(LONG)
        answer = it.page.locator(".line.assistant").first
        await expect(answer.locator(".said")).to_contain_text("twenty", timeout=8_000)
        await expect(it.page.locator(".state")).to_have_text("Speaking")
        await expect(answer.locator(".unheard s")).to_contain_text("twenty", timeout=10_000)
        heard = await answer.locator(".said > span").first.inner_text()
        assert "one two" in heard
        assert "twenty" not in heard
        await expect(answer.locator(".note")).to_contain_text("Interrupted after")
        types = await it.events("-audio.delta -append")
        assert types.index("input_audio_buffer.speech_started") < types.index("conversation.item.truncate")
        assert "conversation.item.retrieved" in types
        item = next(item for item in server.gateway.sessions.all()[0].conductor.session.conversation if item.role == "assistant")
        assert item.text == heard.strip(), "what the page shows is what the server remembers"


async def test_the_button_interrupts_too(server: RunningServer, console: OpenConsole) -> None:
    async with console(server.url) as it:
        await it.start()
        await it.write(LONG)
        await expect(it.page.locator(".state")).to_have_text("Speaking", timeout=8_000)
        await it.page.wait_for_timeout(1000)
        await it.page.keyboard.press("Escape")
        await expect(it.page.locator(".assistant .unheard s")).to_have_text(re.compile(r"\w+"), timeout=5_000)
        await expect(it.page.locator(".state")).to_have_text("Listening")


async def test_push_to_talk_with_the_space_bar(server: RunningServer, console: OpenConsole) -> None:
    async with console(server.url, microphone=voice(20)) as it:
        await it.page.get_by_label("Turn taking").select_option("manual")
        await it.start()
        await expect(it.page.locator(".state")).to_have_text("Waiting for you")
        await it.page.wait_for_timeout(700)
        assert "input_audio_buffer.append" not in await it.events("")
        await it.page.locator(".scroller").focus()
        await it.page.keyboard.down("Space")
        await expect(it.page.locator(".state")).to_have_text("You are speaking")
        await it.page.wait_for_timeout(1200)
        await it.page.keyboard.up("Space")
        await expect(it.page.locator(".line.assistant .said")).to_contain_text("utterance number 1", timeout=10_000)
        types = [
            each for each in await it.events("") if each in ("input_audio_buffer.append", "input_audio_buffer.commit", "response.create")
        ]
        # Appends in a row are one line of the inspector, unless something of the server's came between.
        assert [each for each, _ in itertools.groupby(types)] == [
            "input_audio_buffer.append",
            "input_audio_buffer.commit",
            "response.create",
        ]


async def test_a_muted_microphone_sends_silence(server: RunningServer, console: OpenConsole) -> None:
    async with console(server.url, microphone=voice(20)) as it:
        await it.start()
        await it.page.keyboard.press("m")
        await expect(it.page.get_by_role("button", name="Unmute")).to_be_visible()
        await it.page.wait_for_timeout(2500)
        await it.page.get_by_role("button", name="Unmute").click()
        await expect(it.page.get_by_role("button", name="Mute", exact=False)).to_be_visible()
        user = it.page.locator(".line.user")
        await expect(user).not_to_have_count(0, timeout=8_000)


async def test_settings_change_while_it_runs(server: RunningServer, console: OpenConsole) -> None:
    async with console(server.url) as it:
        await it.start()
        await it.page.get_by_label("Instructions").fill("Speak like a pirate.")
        await it.page.keyboard.press("Tab")
        await it.page.get_by_label("Turn taking").select_option("semantic_vad")
        await it.page.get_by_label("Eagerness").select_option("high")
        await expect(it.page.locator(".event .type", has_text="session.updated")).to_have_count(4, timeout=5_000)
        config = server.gateway.sessions.all()[0].conductor.session.config
        assert config.instructions == "Speak like a pirate."
        assert config.audio.input.turn_detection is not None
        assert config.audio.input.turn_detection.model_dump()["eagerness"] == "high"
        await expect(it.page.get_by_label("Model")).to_be_disabled()


async def test_by_text_without_a_microphone(server: RunningServer, console: OpenConsole) -> None:
    async with console(server.url, microphone=None) as it:
        await it.page.get_by_role("button", name="Start talking").click()
        await expect(it.page.locator(".notice")).to_contain_text("There is no microphone. Plug one in")
        await it.page.get_by_label("Use the microphone").uncheck()
        await it.start()
        await expect(it.page.get_by_role("button", name="Mute")).to_be_hidden()
        await it.write("<img src=x onerror=alert(1)> good evening")
        await expect(it.page.locator(".line.assistant .said")).to_contain_text("good evening", timeout=8_000)
        assert await it.page.locator(".line img").count() == 0, "text is text"


async def test_the_inspector(server: RunningServer, console: OpenConsole) -> None:
    async with console(server.url, permissions=["clipboard-read", "clipboard-write"]) as it:
        await it.start()
        await expect(it.page.locator(".event .type", has_text="session.updated")).to_have_count(1)
        assert await it.events("created") == ["session.created", "conversation.created"]
        await it.page.locator(".event", has_text="session.created").locator("summary").press("Enter")
        await expect(it.page.locator(".event pre")).to_contain_text('"type": "session.created"')
        await it.page.get_by_role("button", name="Copy JSON").click()
        assert '"session.created"' in await it.page.evaluate("navigator.clipboard.readText()")
        await it.events("")
        await it.page.get_by_label("Which events").select_option("sent")
        await expect(it.page.locator(".event.received")).to_have_count(0)
        await it.page.get_by_role("button", name="Pause").click()
        await it.write("not to be seen")
        await expect(it.page.locator(".inspector .summary")).to_contain_text("paused", timeout=3_000)
        assert "response.create" not in await it.events("")


async def test_on_a_phone_and_by_keyboard(server: RunningServer, console: OpenConsole) -> None:
    async with console(server.url, viewport={"width": 360, "height": 700}, reduced_motion="reduce") as it:
        await it.page.keyboard.press("Tab")
        await expect(it.page.locator(":focus")).to_have_text("Skip to the content")
        await it.page.keyboard.press("Enter")
        await expect(it.page.locator("main")).to_be_focused()
        await it.start()
        await it.write("good evening")
        await expect(it.page.locator(".line.assistant .said")).to_contain_text("good evening", timeout=8_000)
        for panel in ("Turns", "Events", "Setup", "Conversation"):
            await it.page.get_by_role("button", name=panel, exact=True).click()
            wide = await it.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 360, f"{panel} is {wide} pixels wide"
            await expect(it.page.get_by_role("button", name="End", exact=True)).to_be_in_viewport()
        unnamed = await it.page.evaluate(
            "[...document.querySelectorAll('input, select, textarea')].filter((each) => !each.labels?.length && !each.ariaLabel).length"
        )
        assert unnamed == 0


async def test_two_calls_in_a_row(server: RunningServer, console: OpenConsole) -> None:
    async with console(server.url) as it:
        for _ in range(2):
            await it.start()
            await it.write("good evening")
            await expect(it.page.locator(".line.assistant")).to_have_count(1, timeout=8_000)
            await it.page.get_by_role("button", name="End", exact=True).click()
            await expect(it.page.get_by_role("button", name="Start talking")).to_be_visible()


async def test_a_key_is_asked_for_and_kept_in_the_tab(console: OpenConsole) -> None:
    async with serving(server={"api_keys": ("sesame",)}) as server, console(server.url, expect=("401", "WebSocket")) as it:
        await expect(it.page.locator("#key-note")).to_have_text("This server wants a key.")
        await it.page.get_by_role("button", name="Start talking").click()
        await expect(it.page.locator(".notice")).to_contain_text("wants a good API key")
        await expect(it.page.get_by_label("API key")).to_be_focused()
        await it.page.get_by_label("API key").fill("wrong")
        await it.page.get_by_label("API key").press("Tab")
        await expect(it.page.locator("#key-note")).to_have_text("The server does not accept this key.")
        await it.page.get_by_label("API key").fill("sesame")
        await it.page.get_by_label("API key").press("Tab")
        await expect(it.page.locator("#key-note")).to_have_text("Kept in this tab until you close it.")
        await it.start()
        await it.write("good evening")
        await expect(it.page.locator(".line.assistant .said")).to_contain_text("good evening", timeout=8_000)
        assert await it.page.evaluate("sessionStorage.getItem('antiphon.key')") == '"sesame"'
        assert "sesame" not in await it.page.evaluate("JSON.stringify(localStorage)")
