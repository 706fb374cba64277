"""The protocol's grammar as a checker: which event may follow which, what must be closed, and what an SDK can read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

EXTENSIONS = {"session.expiring", "session.draining"}
"""Events of our own, which the SDK does not know."""

_ADAPTER: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)

Event = dict[str, Any]


@dataclass
class _Part:
    audio: bool
    deltas: str = ""
    """The text or transcript given out so far."""
    chunks: int = 0
    closed: set[str] = field(default_factory=set)
    open: bool = True


@dataclass
class _OutputItem:
    id: str
    kind: str
    parts: list[_Part] = field(default_factory=list)
    arguments: str = ""
    arguments_done: bool = False
    open: bool = True


@dataclass
class _Response:
    in_conversation: bool
    items: list[_OutputItem] = field(default_factory=list)
    done: bool = False


class Grammar:
    """Takes the events in the order in which they left; raises AssertionError at the first that breaks a rule."""

    def __init__(self) -> None:
        self.responses: dict[str, _Response] = {}
        self.order: list[str] = []
        """The conversation as a client rebuilds it from `previous_item_id`."""
        self.items: dict[str, bool] = {}
        """Items of the conversation: whether they are done."""
        self._known: set[str] = set()
        self._ids: set[str] = set()
        self._committed: tuple[str, str | None] | None = None
        self._turn: str | None = None
        self._stopped: str | None = None
        self._transcribed: set[str] = set()
        self._spoken_ids: set[str] = set()
        self._count = 0

    def take(self, event: Event) -> None:
        """Check one event."""
        kind = event["type"]
        if kind not in EXTENSIONS:
            _ADAPTER.validate_python(event)
        assert event["event_id"] not in self._ids, "event ids are unique"
        self._ids.add(event["event_id"])
        assert (kind == "session.created") == (self._count == 0), "session.created comes first, once"
        self._count += 1
        if self._committed is not None:
            assert kind == "conversation.item.added", f"{kind} between committed and its item"
        if kind in ("response.created", "response.done"):
            self._terminals(kind, event["response"])
        elif kind.startswith("response."):
            self._output(kind, event)
        elif kind.startswith("conversation.item.input_audio_transcription."):
            self._transcription(kind, event)
        elif kind.startswith("conversation.item."):
            self._item(kind, event)
        elif kind.startswith("input_audio_buffer."):
            self._buffer(kind, event)
        elif kind == "error":
            error = event["error"]
            assert error["code"]
            assert error["message"].endswith((".", "'"))

    def finish(self) -> None:
        """Nothing more will come: everything that was begun is ended."""
        assert not [response_id for response_id, response in self.responses.items() if not response.done], "a response without end"
        assert all(self.items.values()), "an item without end"
        assert self._committed is None

    # ---- responses --------------------------------------------------------------------------------------------------

    def _terminals(self, kind: str, response: Event) -> None:
        response_id = response["id"]
        if kind == "response.created":
            assert response_id not in self.responses, "created once"
            assert response["status"] == "in_progress"
            assert response["output"] == []
            fresh = _Response(response["conversation_id"] is not None)
            others = [other for other in self.responses.values() if other.in_conversation and not other.done]
            assert not (fresh.in_conversation and others), "one response writes to the conversation at a time"
            self.responses[response_id] = fresh
            return
        known = self._live(response_id)
        known.done = True
        assert response["status"] in ("completed", "cancelled", "incomplete", "failed")
        assert response["status_details"]["type"] == response["status"]
        assert [item["id"] for item in response["output"]] == [item.id for item in known.items], "the terminal names every item"
        assert all(not item.open for item in known.items), "an item was left open"
        assert "audio" not in str([part.keys() for item in response["output"] for part in item.get("content", [])])
        assert all(item["status"] != "in_progress" for item in response["output"])
        usage = response["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]

    def _live(self, response_id: str) -> _Response:
        assert response_id in self.responses, "something of a response before it was created"
        response = self.responses[response_id]
        assert not response.done, "something of a response after its terminal"
        return response

    def _output(self, kind: str, event: Event) -> None:
        response = self._live(event["response_id"])
        index = event["output_index"]
        if kind == "response.output_item.added":
            assert index == len(response.items), "output indices count up"
            item = event["item"]
            assert item["status"] == "in_progress"
            assert item.get("content", []) == []
            response.items.append(_OutputItem(item["id"], item["type"]))
            return
        assert index < len(response.items), f"{kind} before its item"
        item = response.items[index]
        assert item.open, f"{kind} after its item was done"
        if kind == "response.output_item.done":
            assert event["item"]["id"] == item.id
            assert all(not part.open for part in item.parts), "a part was left open"
            assert item.kind != "function_call" or item.arguments_done
            item.open = False
            if response.in_conversation and item.id in self.items:
                assert self.items[item.id], "the conversation's item is done too"
            return
        assert event["item_id"] == item.id
        if kind.startswith("response.function_call_arguments."):
            self._call(kind, event, item)
        else:
            self._part(kind, event, item)

    def _call(self, kind: str, event: Event, item: _OutputItem) -> None:
        assert item.kind == "function_call"
        assert not item.arguments_done
        if kind.endswith(".delta"):
            item.arguments += event["delta"]
        else:
            assert event["arguments"] == item.arguments
            item.arguments_done = True

    def _part(self, kind: str, event: Event, item: _OutputItem) -> None:
        index = event["content_index"]
        if kind == "response.content_part.added":
            assert index == len(item.parts)
            item.parts.append(_Part(event["part"]["type"] == "audio"))
            return
        assert index < len(item.parts), f"{kind} before its part"
        part = item.parts[index]
        assert part.open, f"{kind} after its part was done"
        wanted = {"response.output_audio.done", "response.output_audio_transcript.done"} if part.audio else {"response.output_text.done"}
        if kind == "response.content_part.done":
            assert part.closed == wanted, "the part's streams are closed before it"
            part.open = False
        elif kind.endswith(".done"):
            assert kind in wanted - part.closed
            part.closed.add(kind)
            if "audio.done" not in kind:
                whole = event["transcript" if part.audio else "text"]
                assert whole.startswith(part.deltas) or part.deltas.startswith(whole), "the whole is not what the deltas said"
        else:
            assert kind.replace(".delta", ".done") in wanted - part.closed, f"{kind} does not belong here"
            part.chunks += 1
            if kind != "response.output_audio.delta":
                part.deltas += event["delta"]

    # ---- the conversation -------------------------------------------------------------------------------------------

    def _item(self, kind: str, event: Event) -> None:
        if kind == "conversation.item.added":
            self._added(event["item"], event["previous_item_id"])
        elif kind == "conversation.item.done":
            item = event["item"]
            assert self.items.get(item["id"]) is False, "done once, after it was added"
            assert item["status"] != "in_progress"
            self.items[item["id"]] = True
            position = self.order.index(item["id"])
            assert event["previous_item_id"] == (self.order[position - 1] if position else None)
        elif kind == "conversation.item.deleted":
            self.order.remove(event["item_id"])
            del self.items[event["item_id"]]
            self._transcribed.discard(event["item_id"])  # the client may use the id again
        else:
            item_id = event["item"]["id"] if kind == "conversation.item.retrieved" else event["item_id"]
            assert item_id in self.items

    def _added(self, item: Event, previous: str | None) -> None:
        item_id = item["id"]
        assert item_id not in self.items, "added once"
        if self._committed is not None:
            assert self._committed == (item_id, previous), "the committed item comes where it was announced"
            self._committed = None
        if previous is None:
            self.order.insert(0, item_id)
        else:
            self.order.insert(self.order.index(previous) + 1, item_id)
        self.items[item_id] = False
        self._known.add(item_id)

    def _transcription(self, kind: str, event: Event) -> None:
        item_id = event["item_id"]
        assert item_id in self._known or item_id == self._turn, "a transcript of an item nobody knows"
        assert item_id not in self._transcribed, "a transcript ends once"
        if not kind.endswith(".delta"):
            assert item_id in self.items, "the item stands in the conversation when its transcript is complete"
            self._transcribed.add(item_id)
        elif not event["delta"]:
            raise AssertionError("an empty delta")

    # ---- the input buffer -------------------------------------------------------------------------------------------

    def _buffer(self, kind: str, event: Event) -> None:
        if kind == "input_audio_buffer.speech_started":
            assert event["item_id"] not in self._spoken_ids
            self._spoken_ids.add(event["item_id"])
            self._turn, self._stopped = event["item_id"], None
        elif kind == "input_audio_buffer.speech_stopped":
            assert event["item_id"] == self._turn, "stopped without started"
            assert self._stopped is None
            self._stopped = event["item_id"]
        elif kind == "input_audio_buffer.timeout_triggered":
            self._stopped = event["item_id"]
        elif kind == "input_audio_buffer.committed":
            if self._stopped is not None:
                assert event["item_id"] == self._stopped, "the item keeps its id from speech_started to committed"
                self._stopped = None
            self._committed = (event["item_id"], event["previous_item_id"])
