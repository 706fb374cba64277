"""Who said what, put together from the server's events, and what of it was heard."""

from __future__ import annotations

from dataclasses import dataclass, field

from .interface import ServerEvent


@dataclass(slots=True)
class Line:
    """What one side said in one conversation item. `kept` is what the server remembers of an answer that was cut (None: all)."""

    item_id: str
    speaker: str
    said: str = ""
    kept: str | None = None
    complete: bool = False
    response_id: str | None = None
    status: str = ""

    @property
    def heard(self) -> str:
        return self.said if self.kept is None else self.kept

    @property
    def unheard(self) -> str:
        """The end of an answer that nobody heard."""
        if self.kept is None:
            return ""
        return self.said[len(self.kept) :] if self.said.startswith(self.kept) else self.said


@dataclass(slots=True)
class Transcript:
    """The conversation so far, in the order in which the items were added."""

    lines: dict[str, Line] = field(default_factory=dict)

    def take(self, event: ServerEvent) -> Line | None:
        """Take an event; gives the line that it changed."""
        item_id = event.item_id
        if item_id is None:
            return self._ended(event) if event.type == "response.done" else None
        match event.type.split("."):
            case ["input_audio_buffer", "speech_started"]:
                return self._line(item_id, "caller")
            case ["conversation", "item", "input_audio_transcription", "delta"]:
                line = self._line(item_id, "caller")
                line.said += event.data.get("delta") or ""
                return line
            case ["conversation", "item", "input_audio_transcription", "completed"]:
                line = self._line(item_id, "caller")
                line.said, line.complete = event.data["transcript"], True
                return line
            case ["response", "output_audio_transcript" | "audio_transcript" | "output_text" | "text", "delta"]:
                line = self._line(item_id, "assistant")
                line.response_id = event.response_id
                line.said += event.data["delta"]
                return line
            case ["conversation", "item", "truncated"]:
                return self.lines.get(item_id)
            case ["conversation", "item", "retrieved"] if item_id in self.lines and self.lines[item_id].speaker == "assistant":
                line = self.lines[item_id]
                line.kept = "".join(part.get("transcript") or "" for part in event.data["item"].get("content", []))
                return line
            case ["conversation", "item", "deleted"]:
                return self.lines.pop(item_id, None)
        return None

    def _line(self, item_id: str, speaker: str) -> Line:
        return self.lines.setdefault(item_id, Line(item_id, speaker))

    def _ended(self, event: ServerEvent) -> Line | None:
        found = [line for line in self.lines.values() if line.response_id == event.response_id]
        for line in found:
            line.complete, line.status = True, event.data["response"].get("status", "")
        return found[-1] if found else None
