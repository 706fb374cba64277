"""`antiphon talk`: speak with a server through microphone and loudspeaker, or let a file speak."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from ..codecs import wav
from .audio_sender import AudioSender
from .call import Call
from .call_recording import save_call
from .errors import CallFailed, NoAnswer
from .interface import VoiceClient
from .microphone import SoundCard
from .player import Player, SimulatedPlayer
from .printer import Printer
from .realtime import connect

app = typer.Typer(help="Speak with a voice server.", no_args_is_help=False)

FAILED, USAGE, STOPPED = 1, 2, 130
LEAD_IN_MS = 300
"""Silence before a file begins, so that its first syllable has something before it, as a live one has."""


@app.command()
def talk(
    url: Annotated[str, typer.Option(help="The server's address.", envvar="ANTIPHON_URL")] = "ws://127.0.0.1:8765",
    model: Annotated[str, typer.Option(help="The model to ask for.")] = "antiphon-voice",
    api_key: Annotated[str | None, typer.Option(help="The API key, if the server wants one.", envvar="ANTIPHON_API_KEY")] = None,
    file: Annotated[Path | None, typer.Option(help="Speak this WAV file in real time instead of using the microphone.")] = None,
    save: Annotated[Path | None, typer.Option(help="Save the call: a WAV file, caller left, assistant right.")] = None,
    voice: Annotated[str | None, typer.Option(help="The assistant's voice.")] = None,
    instructions: Annotated[str | None, typer.Option(help="The assistant's instructions.")] = None,
    frame_ms: Annotated[int, typer.Option(help="Milliseconds of audio in each event.", min=10, max=200)] = 20,
    wait: Annotated[float, typer.Option(help="With --file: seconds to wait for the answer to begin.", min=0)] = 15.0,
    webrtc: Annotated[bool, typer.Option("--webrtc", help="Call over WebRTC, as a browser does, instead of a WebSocket.")] = False,
) -> None:
    """Speak with the server and see the conversation as it goes. Interrupt it whenever you like.

    Ends with Ctrl-C, or with --file once the answer has been heard. Exit codes: 0 it went well, 1 the server could not be
    reached, failed or gave no answer, 2 a file or the sound card cannot be used, 130 ended by Ctrl-C while a file was speaking.
    """
    console = Console()
    try:
        speech = wav.read(file) if file is not None else None
    except (OSError, wav.WavError) as error:
        console.print(Text(f"The file cannot be used: {error}", style="red"))
        raise typer.Exit(USAGE) from error
    settings = {"voice": voice, "instructions": instructions}
    try:
        asyncio.run(_talk(console, url, model, api_key, speech, save, settings, frame_ms, wait, webrtc))
    except CallFailed as error:
        console.print(Text(str(error), style="red"))
        raise typer.Exit(USAGE if "extra" in str(error) or "sound card" in str(error) else FAILED) from error
    except KeyboardInterrupt:
        raise typer.Exit(STOPPED if file is not None else 0) from None


async def _talk(
    console: Console,
    url: str,
    model: str,
    api_key: str | None,
    speech: bytes | None,
    save: Path | None,
    settings: dict[str, str | None],
    frame_ms: int,
    wait: float,
    webrtc: bool,
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        card = await stack.enter_async_context(SoundCard(frame_ms)) if speech is None else None
        client = await _connect(url, model, api_key, webrtc)
        player: Player = card.player if card is not None else SimulatedPlayer()
        sender = AudioSender(client.send_audio, frame_ms=frame_ms) if card is None else MicrophoneSender(client, card, frame_ms)
        printer = stack.enter_context(Printer(console))
        call = Call(client, player, sender=sender, on_event=printer.take)
        try:
            async with call:
                await _configure(call, settings)
                if speech is None:
                    console.print("Speak. Ctrl-C ends the call.", style="dim")
                    await call.wait_for(lambda _: False, timeout=24 * 3600)
                else:
                    await _speak_file(call, sender, speech, wait)
        finally:
            if save is not None and sender.started_at is not None:
                save_call(save, bytes(sender.sent), sender.started_at, player.segments())
                console.print(Text(f"The call is in {save}", style="dim"))


async def _connect(url: str, model: str, api_key: str | None, webrtc: bool) -> VoiceClient:
    """The client of the wanted transport. Raises `CouldNotConnect`."""
    if not webrtc:
        return await connect(url, model=model, api_key=api_key)
    try:
        from . import webrtc as calls  # aiortc takes most of a second to import
    except ImportError as error:
        raise CallFailed(f"Calls over WebRTC need the extra 'webrtc': pip install 'antiphon[webrtc]' ({error})") from error
    return await calls.connect(url, model=model, api_key=api_key)


class MicrophoneSender(AudioSender):
    """Sends what the microphone hears, as it comes."""

    def __init__(self, client: VoiceClient, card: SoundCard, frame_ms: int) -> None:
        super().__init__(client.send_audio, frame_ms=frame_ms)
        self._card = card
        self._to = client.send_audio

    async def run(self) -> None:
        """Send until cancelled."""
        self.started_at = self._clock()
        while True:
            frame = await self._card.frame()
            if len(self.sent) < self._keep:
                self.sent += frame
            self.position += len(frame) // 2
            await self._to(frame)


async def _configure(call: Call, settings: dict[str, str | None]) -> None:
    """Ask for transcription and semantic turn ends; the rest stays as the server has it."""
    audio: dict[str, object] = {"input": {"transcription": {"model": "whisper-1"}, "turn_detection": {"type": "semantic_vad"}}}
    if settings["voice"]:
        audio["output"] = {"voice": settings["voice"]}
    extra = {"instructions": settings["instructions"]} if settings["instructions"] else {}
    await call.update_session(audio=audio, **extra)


async def _speak_file(call: Call, sender: AudioSender, speech: bytes, wait: float) -> None:
    """Let the file speak, and listen until nothing more comes."""
    said = sender.say(speech, delay_ms=LEAD_IN_MS)
    while sender.position < said.end:
        await call.pause(0.05)
    mark = len(call.events)
    if not call.responding:
        try:
            await call.wait_for(lambda event: event.type == "response.created", timeout=wait, since=max(0, mark - 20))
        except NoAnswer as error:
            raise NoAnswer(f"The server did not answer within {wait:g} s of the end of the file.") from error
    await call.wait_until_silent(timeout=120)
    with contextlib.suppress(NoAnswer):  # a file with several sentences may go on being answered
        await call.wait_for(lambda event: event.type == "response.created", timeout=1.0, since=len(call.events))
        await call.wait_until_silent(timeout=120)
