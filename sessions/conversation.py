"""The conversation: items in order, bounded, and what the chat model is shown of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .commands import Message
from .errors import ClientEventError
from .items import HeardPart, Item

ROOT = "root"


class Conversation:
    """Items in the order of their `previous_item_id`. Bounds: `max_items` and `max_text` characters (the oldest items go first),
    and `max_audio` bytes of kept audio (the oldest items forget theirs first; transcripts stay)."""

    def __init__(self, conversation_id: str, max_items: int, max_audio: int, max_text: int = 4_000_000) -> None:
        self.id = conversation_id
        self._items: list[Item] = []
        self._by_id: dict[str, Item] = {}
        self._max_items = max_items
        self._max_audio = max_audio
        self._max_text = max_text
        self.grown = False
        """Whether an item, or the audio of an answer, came in since the last `overflow`."""

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def get(self, item_id: str) -> Item | None:
        return self._by_id.get(item_id)

    def last_id(self) -> str | None:
        """The id that the next appended item follows."""
        return self._items[-1].id if self._items else None

    def before(self, item_id: str) -> str | None:
        """The id of the item before this one (None: it is the first)."""
        position = self._items.index(self._by_id[item_id])
        return self._items[position - 1].id if position else None

    def insert(self, item: Item, after: str | None = None, event_id: str | None = None) -> str | None:
        """Put an item after the one named (None: at the end; "root": first). Returns the id of the one before it.

        Raises ClientEventError: item_create_duplicate_item_id, or invalid_value when `after` is unknown.
        """
        if item.id in self._by_id:
            raise ClientEventError(
                code="item_create_duplicate_item_id",
                message=f"Error adding item: an item with id '{item.id}' already exists in the conversation.",
                param="item.id",
                event_id=event_id,
            )
        if after is None:
            position = len(self._items)
        elif after == ROOT:
            position = 0
        elif after in self._by_id:
            position = self._items.index(self._by_id[after]) + 1
        else:
            raise ClientEventError(
                code="invalid_value",
                message=f"Error adding item: the previous item with id '{after}' does not exist.",
                param="previous_item_id",
                event_id=event_id,
            )
        self._items.insert(position, item)
        self._by_id[item.id] = item
        self.grown = True
        return self._items[position - 1].id if position else None

    def remove(self, item_id: str) -> Item | None:
        item = self._by_id.pop(item_id, None)
        if item is not None:
            self._items.remove(item)
        return item

    def overflow(self, keep: Iterable[str] = ()) -> list[Item]:
        """Forget the oldest items beyond the bound, and the oldest audio; returns the removed items. Items in `keep` stay."""
        self.grown = False
        kept = set(keep)
        removed: list[Item] = []
        text = sum(item.text_length for item in self._items)
        for item in [i for i in self._items if i.id not in kept]:
            if len(self._items) <= self._max_items and text <= self._max_text:
                break
            text -= item.text_length
            self.remove(item.id)
            removed.append(item)
        held = sum(item.audio_bytes for item in self._items)
        for item in self._items:
            if held <= self._max_audio:
                break
            if item.id not in kept:
                held -= item.audio_bytes
                item.forget_audio()
        return removed


def untranscribed(items: Iterable[Item]) -> list[Item]:
    """Items whose speech is not written down yet."""
    return [item for item in items if any(isinstance(part, HeardPart) and part.transcript is None for part in item.content)]


def messages(items: Iterable[Item], instructions: str) -> tuple[Message, ...]:
    """What the chat model is shown: instructions, then the items in order, the assistant's as far as it was heard.

    Neighbouring user messages are one (a turn that was resumed), empty ones are left out, neighbouring function calls are one
    assistant message. A call that was cut short (its arguments are half a JSON text) is left out unless it has an output.
    """
    result: list[Message] = [Message("system", instructions)] if instructions.strip() else []
    items = list(items)
    answered = {item.call_id for item in items if item.type == "function_call_output"}
    for item in items:
        if item.type == "function_call":
            if item.status == "incomplete" and item.call_id not in answered:
                continue
            call = (item.call_id, item.name, item.arguments)
            last = result[-1] if result else None
            if last is not None and last.role == "assistant" and last.tool_calls:
                result[-1] = Message("assistant", last.text, (*last.tool_calls, call))
            else:
                result.append(Message("assistant", "", (call,)))
        elif item.type == "function_call_output":
            result.append(Message("tool", item.output, (), item.call_id))
        elif item.note:
            result.append(Message("system", item.note))
        elif text := item.text:
            role = item.role or "user"
            if role == "user" and result and result[-1].role == "user":
                result[-1] = Message("user", f"{result[-1].text} {text}")
            else:
                result.append(Message(role, text))
    return tuple(result)
