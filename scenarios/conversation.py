"""Plays a scripted call against a server, and keeps what is needed to measure it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..clients.audio_sender import AudioSender
from ..clients.call import Call
from ..clients.call_recording import save_call
from ..clients.errors import NoAnswer
from ..clients.interface import ServerEvent, VoiceClient
from ..clients.player import Segment, SimulatedPlayer, Stopped
from ..codecs.pcm import SAMPLE_RATE
from . import sounds
from .callers import Callers
from .script import Action, Backchannel, Interrupt, Noise, Say

ANSWER_TIMEOUT_S = 20.0
LONGEST_ANSWER_S = 40.0
"""A caller who has listened for so long presses the button that stops the assistant."""
PAUSE_S = 0.7
"""Between the end of an answer and the caller's next words."""
WATCH_S = 1.5
"""How long after a hum or a noise the assistant must go on, for it to count as ignored."""
NOISE_MARGIN_S = 0.3
STEADY_DBFS = -36.0

SESSION: dict[str, Any] = {
    "output_modalities": ["audio"],
    "max_output_tokens": 70,
    "audio": {
        "input": {"turn_detection": {"type": "semantic_vad", "eagerness": "auto"}, "transcription": {"model": "whisper-1"}},
    },
}
"""The session that scenarios ask for; answers of a small model are kept to some fifteen seconds."""


@dataclass(slots=True)
class Happening:
    """Something that sounded at the caller's end. `onset` and `end` are the times of its first and last audible sample.

    `over` is the answer's item that was being heard then; an action that came too late to be over anything has none.
    """

    kind: str
    text: str
    voice: str
    onset: float
    end: float
    snr_db: float | None = None
    over: str | None = None
    answered: bool = True


@dataclass(slots=True)
class CallLog:
    """A call that was played: all that `figures` needs."""

    events: list[ServerEvent]
    happenings: list[Happening]
    cuts: list[tuple[float, Stopped]]
    kept: dict[str, str]
    """The transcript that the server keeps of each item that was cut."""
    heard: list[Segment]
    started_at: float
    caller_audio: bytes
    underruns: int = 0
    underrun_s: float = 0.0
    stale_bytes: int = 0
    late_frames: int = 0
    session_id: str = ""
    server_report: Mapping[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Both sides as a WAV file."""
        save_call(path, self.caller_audio, self.started_at, self.heard)

    def heard_audio(self, item_id: str) -> bytes:
        """The PCM of an item that was heard."""
        return b"".join(segment.pcm for segment in self.heard if segment.item_id == item_id)


class Conversation:
    """Plays a script on one connection. `spare` are questions to ask when an answer was too short to be interrupted; `inspect`
    is asked for the server's own view of the session (by its id) at the end, before the call hangs up."""

    def __init__(
        self,
        client: VoiceClient,
        callers: Callers,
        *,
        seed: int = 7,
        spare: Sequence[Say] = (),
        on_event: Callable[[ServerEvent], None] | None = None,
        inspect: Callable[[str], Awaitable[Mapping[str, Any]]] | None = None,
    ) -> None:
        self.player = SimulatedPlayer()
        self.sender = AudioSender(client.send_audio, frame_ms=20)
        self.call = Call(client, self.player, sender=self.sender, on_event=on_event)
        self.happenings: list[Happening] = []
        self._callers = callers
        self._random = np.random.default_rng(seed)
        self._spare = list(spare)
        self._inspect = inspect

    async def play(self, script: Sequence[Action], settings: Mapping[str, Any]) -> CallLog:
        """The whole call. Raises `CallFailed` when the connection is lost; an answer that does not come is only noted."""
        async with self.call:
            await self.call.update_session(**settings)
            await self.call.pause(0.5)
            for action in script:
                await self._act(action)
            await self._silence()
            await self.call.pause(0.5)
            session_id = str(self.call.session.get("id", ""))
            server_report = await self._inspect(session_id) if self._inspect is not None else {}
        started = self.sender.started_at
        assert started is not None
        return CallLog(
            events=self.call.events,
            happenings=self.happenings,
            cuts=self.call.cuts,
            kept=self.call.heard_transcripts,
            heard=self.player.segments(),
            started_at=started,
            caller_audio=bytes(self.sender.sent),
            underruns=self.player.underruns,
            underrun_s=self.player.underrun_s,
            stale_bytes=self.player.stale_bytes,
            late_frames=self.sender.late_frames,
            session_id=session_id,
            server_report=server_report,
        )

    async def _act(self, action: Action) -> None:
        match action:
            case Say():
                await self._silence()
                await self.call.pause(PAUSE_S)
                speech = self._callers.pcm(action.caller, action.text)
                if action.snr_db is not None:
                    noisy = sounds.with_noise(speech, action.snr_db, self._random, margin_s=NOISE_MARGIN_S)
                    await self._speak(action, noisy, sounds.audible(speech), NOISE_MARGIN_S)
                else:
                    await self._speak(action, speech, sounds.audible(speech))
            case Interrupt():
                over = await self._over(action.after_ms)
                speech = self._callers.pcm(action.caller, action.text)
                await self._speak(action, speech, sounds.audible(speech), over=over)
            case Backchannel():
                over = await self._over(action.after_ms)
                speech = self._callers.pcm(action.caller, action.text)
                await self._sound("backchannel", action.text, self._callers.voice(action.caller), speech, over)
            case Noise():
                over = await self._over(action.after_ms)
                await self._sound(action.kind, "", "", self._noise(action.kind), over)

    async def _over(self, after_ms: int) -> str | None:
        """Wait until so much of the answer was heard; gives its item. Asks a spare question when the answer is over before."""
        while True:
            now = time.monotonic()
            item = self.player.playing(now)
            if item is not None and self.player.heard_ms(item, now) >= after_ms:
                return item
            if item is None and not self.call.responding:
                if not self._spare:
                    return None
                await self._act(self._spare.pop(0))
            await self.call.pause(0.01)

    async def _speak(
        self, action: Say | Interrupt, pcm: bytes, audible: tuple[int, int], margin_s: float = 0.0, over: str | None = None
    ) -> None:
        """Say it and wait until the answer begins."""
        kind = "interrupt" if isinstance(action, Interrupt) else "say"
        happening = self._happen(kind, action.text, self._callers.voice(action.caller), pcm, audible, margin_s)
        happening.over = over
        happening.snr_db = action.snr_db if isinstance(action, Say) else None
        while time.monotonic() < happening.end:
            await self.call.pause(0.02)
        created: set[str | None] = set()

        def answers(event: ServerEvent) -> bool:
            if event.type == "response.created" and event.at > happening.onset:
                created.add(event.response_id)
            return bool(event.audio) and event.at >= happening.end and event.response_id in created

        try:
            await self.call.wait_for(answers, timeout=ANSWER_TIMEOUT_S)
        except NoAnswer:
            happening.answered = False

    async def _sound(self, kind: str, text: str, voice: str, pcm: bytes, over: str | None) -> None:
        """Let it sound, and watch what becomes of the answer."""
        happening = self._happen(kind, text, voice, pcm, sounds.audible(pcm))
        happening.over = over
        while time.monotonic() < happening.end + WATCH_S:
            await self.call.pause(0.02)

    def _happen(self, kind: str, text: str, voice: str, pcm: bytes, audible: tuple[int, int], margin_s: float = 0.0) -> Happening:
        spoken = self.sender.say(pcm)
        base = spoken.start + round(margin_s * SAMPLE_RATE)
        happening = Happening(kind, text, voice, self.sender.time_of(base + audible[0]), self.sender.time_of(base + audible[1]))
        self.happenings.append(happening)
        return happening

    def _noise(self, kind: str) -> bytes:
        match kind:
            case "click":
                return sounds.click(self._random)
            case "cough":
                return sounds.cough(self._random)
            case "steady":
                return sounds.steady(3.0, STEADY_DBFS, self._random)
        raise ValueError(f"there is no noise called {kind!r}; there are click, cough and steady")

    async def _silence(self) -> None:
        """Wait until the answer has been heard to its end."""
        try:
            await self.call.wait_until_silent(timeout=LONGEST_ANSWER_S)
        except NoAnswer:
            await self.call.interrupt()
        while self.sender.speaking:
            await self.call.pause(0.02)
