"""Conversation items: what was said, by whom, and how it looks on the wire."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pybase64

from .timeline import SAMPLE_RATE, Timeline


@dataclass(slots=True)
class TextPart:
    """Written text: `input_text` of users and systems, `output_text` of the assistant."""

    text: str
    kind: str = "input_text"

    def wire(self) -> dict[str, Any]:
        return {"type": self.kind, "text": self.text}


@dataclass(slots=True)
class HeardPart:
    """A caller's speech (`input_audio`). `transcript` is None until it is known; `pcm` may be forgotten to save memory."""

    transcript: str | None = None
    pcm: bytes | None = None

    def wire(self, include_audio: bool = False) -> dict[str, Any]:
        part: dict[str, Any] = {"type": "input_audio", "transcript": self.transcript}
        if include_audio and self.pcm is not None:
            part["audio"] = pybase64.b64encode(self.pcm).decode("ascii")
        return part


@dataclass(slots=True)
class SpokenPart:
    """The assistant's speech (`output_audio`). `cut_ms` is where the listener stopped hearing it; None: it was heard to the end.

    `audio` holds the PCM sent so far, for retrieval; `given` is text of an item that a client created without audio.
    """

    timeline: Timeline = field(default_factory=Timeline)
    cut_ms: float | None = None
    given: str = ""
    audio: bytearray = field(default_factory=bytearray)

    @property
    def transcript(self) -> str:
        """The text as far as it was heard."""
        if self.cut_ms is None:
            return self.given + self.timeline.transcript
        return self.timeline.heard(self.cut_ms)

    @property
    def pcm(self) -> bytes:
        """The audio as far as it was heard."""
        end = len(self.audio) if self.cut_ms is None else int(self.cut_ms * SAMPLE_RATE / 1000) * 2
        return bytes(memoryview(self.audio)[:end])

    def wire(self, include_audio: bool = False) -> dict[str, Any]:
        part: dict[str, Any] = {"type": "output_audio", "transcript": self.transcript}
        if include_audio and self.audio:
            part["audio"] = pybase64.b64encode(self.pcm).decode("ascii")
        return part


Part = TextPart | HeardPart | SpokenPart


@dataclass(slots=True)
class Item:
    """An item of a conversation. `type`: message, function_call or function_call_output; `role` only of messages."""

    id: str
    type: str = "message"
    role: str | None = None
    status: str = "completed"
    content: list[Part] = field(default_factory=list)
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: str = ""
    note: str = ""
    """A stage direction for the chat model that stands for this item (an idle timeout), never on the wire."""

    def wire(self, *, include_audio: bool = False, empty: bool = False) -> dict[str, Any]:
        """The item's wire form; `empty` leaves the content out (an item that has just begun)."""
        shape: dict[str, Any] = {"id": self.id, "object": "realtime.item", "type": self.type, "status": self.status}
        if self.type == "message":
            shape["role"] = self.role
            shape["content"] = [] if empty else [_part(part, include_audio) for part in self.content]
        elif self.type == "function_call":
            shape |= {"call_id": self.call_id, "name": self.name, "arguments": "" if empty else self.arguments}
        else:
            shape |= {"call_id": self.call_id, "output": self.output}
        return shape

    @property
    def spoken(self) -> SpokenPart | None:
        """The assistant's speech in this item, if any."""
        return next((part for part in self.content if isinstance(part, SpokenPart)), None)

    @property
    def heard(self) -> HeardPart | None:
        """The caller's speech in this item, if any."""
        return next((part for part in self.content if isinstance(part, HeardPart)), None)

    @property
    def text(self) -> str:
        """All text of the item, as far as it was heard; unknown transcripts count as empty."""
        return " ".join(filter(None, ((p.text if isinstance(p, TextPart) else p.transcript or "").strip() for p in self.content)))

    @property
    def wire_audio_bytes(self) -> int:
        """How much audio `wire(include_audio=True)` would carry."""
        whole = self.audio_bytes
        part = self.spoken
        return whole if part is None or part.cut_ms is None else min(whole, int(part.cut_ms * SAMPLE_RATE / 1000) * 2)

    @property
    def text_length(self) -> int:
        """How many characters of text the item keeps."""
        texts = [self.name, self.arguments, self.output, *(p.text if isinstance(p, TextPart) else p.transcript or "" for p in self.content)]
        return sum(map(len, texts))

    @property
    def audio_bytes(self) -> int:
        """How much audio the item keeps."""
        return sum(
            len(p.pcm or b"") if isinstance(p, HeardPart) else len(p.audio) if isinstance(p, SpokenPart) else 0 for p in self.content
        )

    def forget_audio(self) -> None:
        """Free the item's audio; its transcript stays."""
        for part in self.content:
            if isinstance(part, HeardPart):
                part.pcm = None
            elif isinstance(part, SpokenPart):
                part.audio = bytearray()


def _part(part: Part, include_audio: bool) -> dict[str, Any]:
    return part.wire() if isinstance(part, TextPart) else part.wire(include_audio)
