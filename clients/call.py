"""A whole call: reads the server's events, plays its audio, sends the caller's, and gives way when it is interrupted.

When the server says that the caller has begun to speak (`input_audio_buffer.speech_started`), the call does what clients of
this protocol do: it stops its player and sends `conversation.item.truncate` with what was heard. It then asks for the item
back, so that `heard_transcripts` says what the server will remember.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from .audio_sender import AudioSender
from .errors import CallFailed, NoAnswer
from .interface import ServerEvent, VoiceClient
from .player import Player, Stopped

MAX_EVENTS = 500_000
"""A call that has seen more events than this is ended: about five hours of speech."""


class Call:
    """Use as `async with Call(client, player) as call`. Leaving hangs up.

    `on_event` is called with every event, after the player has had it. `events` is the log of the call.
    """

    def __init__(
        self,
        client: VoiceClient,
        player: Player,
        *,
        sender: AudioSender | None = None,
        on_event: Callable[[ServerEvent], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = client
        self.player = player
        self.sender = sender
        self.events: list[ServerEvent] = []
        self.cuts: list[tuple[float, Stopped]] = []
        """Every stop of the player: when, and what it had been playing."""
        self.heard_transcripts: dict[str, str] = {}
        """The transcript that the server keeps of each item that was cut."""
        self.ended = False
        self._on_event = on_event
        self._clock = clock
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._open: set[str | None] = set()

    async def __aenter__(self) -> Self:
        self._tasks.append(asyncio.create_task(self._read(), name="call reader"))
        try:
            await self.wait_for(lambda event: event.type == "session.created", timeout=15)
        except BaseException:
            await self._hang_up()
            raise
        if self.sender is not None:
            self._tasks.append(asyncio.create_task(self.sender.run(), name="call sender"))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._hang_up()

    @property
    def session(self) -> Mapping[str, Any]:
        """The session as the server last described it."""
        for event in reversed(self.events):
            if event.type in ("session.created", "session.updated"):
                return dict(event.data["session"])
        return {}

    async def update_session(self, **changes: Any) -> Mapping[str, Any]:
        """Change the session and return it as the server now has it. Raises `CallFailed` when the server refuses."""
        mark = len(self.events)
        sent = await self.client.send({"type": "session.update", "session": {"type": "realtime", **changes}})
        answer = await self.wait_for(
            lambda event: event.type == "session.updated" or (event.type == "error" and event.data["error"].get("event_id") == sent),
            timeout=10,
            since=mark,
        )
        if answer.type == "error":
            raise CallFailed(f"The server refused the session's settings: {answer.data['error'].get('message')}")
        return dict(answer.data["session"])

    async def wait_for(self, wanted: Callable[[ServerEvent], bool], *, timeout: float, since: int = 0) -> ServerEvent:
        """The first event from index `since` of `events` on for which `wanted` holds. Raises `NoAnswer`, `CallFailed`."""
        deadline = self._clock() + timeout
        index = since
        while True:
            while index < len(self.events):
                if wanted(self.events[index]):
                    return self.events[index]
                index += 1
            self._check()
            try:
                await asyncio.wait_for(self._changed.wait(), max(0.0, deadline - self._clock()))
            except TimeoutError:
                last = self.events[-1].type if self.events else "nothing"
                raise NoAnswer(f"The server did not send what was waited for within {timeout:g} s (its last event: {last}).") from None

    async def pause(self, seconds: float) -> None:
        """Let time pass while the call goes on. Raises `CallFailed` when it has ended."""
        await asyncio.sleep(seconds)
        self._check()

    async def wait_until_silent(self, *, timeout: float) -> None:
        """Wait until no response is being made and the player has played everything. Raises `NoAnswer`, `CallFailed`."""
        deadline = self._clock() + timeout
        while self.responding or self.player.playing(self._clock()) is not None:
            self._check()
            if self._clock() > deadline:
                raise NoAnswer(f"The assistant did not come to an end within {timeout:g} s.")
            await asyncio.sleep(0.02)

    @property
    def responding(self) -> bool:
        """Whether a response has been created and not ended."""
        return bool(self._open)

    async def interrupt(self) -> None:
        """Stop the assistant as a push of a button does: cancel the response, stop the player, cut the conversation."""
        if self.responding:
            await self.client.send({"type": "response.cancel"})
        await self._give_way()

    # ---- the two tasks ----

    async def _read(self) -> None:
        try:
            async for event in self.client:
                await self._take(event)
                if len(self.events) >= MAX_EVENTS:
                    raise CallFailed(f"The call has seen {MAX_EVENTS} events and is ended.")
        finally:
            self.ended = True
            self._wake()

    async def _take(self, event: ServerEvent) -> None:
        if event.audio and event.item_id is not None:
            self.player.play(event.item_id, event.data.get("content_index", 0), event.audio, event.at)
        elif event.type in ("response.output_audio.done", "response.audio.done") and event.item_id is not None:
            self.player.finish(event.item_id)
        elif event.type == "input_audio_buffer.speech_started":
            await self._give_way()
        elif event.type == "conversation.item.truncated" and not self.client.server_owns_playback:
            await self.client.send({"type": "conversation.item.retrieve", "item_id": event.data["item_id"]})
        elif event.type == "conversation.item.retrieved":
            self._keep_heard(event)
        elif event.type == "response.created":
            self._open.add(event.response_id)
        elif event.type == "response.done":
            self._open.discard(event.response_id)
        self.events.append(event)
        if self._on_event is not None:
            self._on_event(event)
        self._wake()

    async def _give_way(self) -> None:
        now = self._clock()
        for stopped in self.player.stop(now):
            self.cuts.append((now, stopped))
            if not self.client.server_owns_playback:
                await self.client.send(
                    {
                        "type": "conversation.item.truncate",
                        "item_id": stopped.item_id,
                        "content_index": stopped.content_index,
                        "audio_end_ms": int(stopped.heard_ms),
                    }
                )

    def _keep_heard(self, event: ServerEvent) -> None:
        item = event.data["item"]
        if item.get("role") == "assistant":
            self.heard_transcripts[item["id"]] = "".join(
                part.get("transcript") or part.get("text") or "" for part in item.get("content", [])
            )

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _check(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error
        if self.ended:
            raise CallFailed("The server ended the call.")

    async def _hang_up(self) -> None:
        for task in self._tasks[1:]:
            task.cancel()
        try:
            async with asyncio.timeout(5):
                await self.client.close()
        except TimeoutError:
            pass  # the connection is dropped below all the same
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
