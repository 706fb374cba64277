"""Client events for fuzzing: valid ones, nearly valid ones, and mutated recordings."""

from __future__ import annotations

import copy
import json
from typing import Any

from antiphon.tests.gateway.outside import QUIET, TONE
from hypothesis import strategies as st

Event = dict[str, Any]

ITEM_IDS = st.sampled_from(["item_a", "item_b", "item_c", "root", "nobody", "x" * 64])
TEXTS = st.one_of(st.sampled_from(["Hello.", "", "call look_up {}", "One, two. Three!\n- four"]), st.text(max_size=40))
AUDIO = st.sampled_from([QUIET, TONE, "", "AAAA", "AAA", "!!!!", "A" * 6000])


def content(role: str) -> st.SearchStrategy[list[Event]]:
    """Content parts of a message of this role."""
    text = st.builds(lambda text: {"type": "output_text" if role == "assistant" else "input_text", "text": text}, TEXTS)
    kind = "output_audio" if role == "assistant" else "input_audio"
    audio = st.builds(lambda audio, transcript: {"type": kind, "audio": audio, "transcript": transcript}, AUDIO, st.none() | TEXTS)
    return st.lists(text if role == "system" else st.one_of(text, audio), max_size=3)


MESSAGES = st.sampled_from(["system", "user", "assistant"]).flatmap(
    lambda role: st.builds(lambda id, content: {"id": id, "type": "message", "role": role, "content": content}, ITEM_IDS, content(role))
)
ITEMS = st.one_of(
    MESSAGES,
    st.builds(lambda id: {"id": id, "type": "function_call", "call_id": "c1", "name": "look_up", "arguments": "{}"}, ITEM_IDS),
    st.builds(lambda id, out: {"id": id, "type": "function_call_output", "call_id": "c1", "output": out}, ITEM_IDS, TEXTS),
)
TOOLS = st.sampled_from([[], [{"type": "function", "name": "look_up", "parameters": {"type": "object"}}]])
DETECTIONS = st.sampled_from(
    [
        None,
        {"type": "server_vad"},
        {"type": "server_vad", "silence_duration_ms": 200, "interrupt_response": False},
        {"type": "server_vad", "create_response": False, "idle_timeout_ms": 5000},
        {"type": "semantic_vad", "eagerness": "high"},
    ]
)
FORMATS = st.sampled_from([{"type": "audio/pcm", "rate": 24000}, {"type": "audio/pcmu"}, {"type": "audio/pcma"}])
MODALITIES = st.sampled_from([["audio"], ["text"], ["text", "audio"]])
SESSIONS = st.builds(
    lambda instructions, modalities, detection, incoming, outgoing, tools: {
        "type": "realtime",
        "instructions": instructions,
        "output_modalities": modalities,
        "tools": tools,
        "audio": {"input": {"turn_detection": detection, "format": incoming}, "output": {"format": outgoing}},
    },
    TEXTS,
    MODALITIES,
    DETECTIONS,
    FORMATS,
    FORMATS,
    TOOLS,
)
RESPONSES = st.fixed_dictionaries(
    {},
    optional={
        "conversation": st.sampled_from(["auto", "none"]),
        "input": st.lists(st.one_of(ITEMS, st.builds(lambda id: {"type": "item_reference", "id": id}, ITEM_IDS)), max_size=3),
        "instructions": TEXTS,
        "output_modalities": MODALITIES,
        "tools": TOOLS,
        "tool_choice": st.sampled_from(["auto", "none", "required", {"type": "function", "name": "look_up"}]),
        "max_output_tokens": st.sampled_from([1, 5, 4096, "inf"]),
        "metadata": st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=2),
        "audio": st.builds(lambda format: {"output": {"format": format}}, FORMATS),
    },
)
VALID = st.one_of(
    st.builds(lambda session: {"type": "session.update", "session": session}, SESSIONS),
    st.builds(lambda audio: {"type": "input_audio_buffer.append", "audio": audio}, AUDIO),
    st.just({"type": "input_audio_buffer.commit"}),
    st.just({"type": "input_audio_buffer.clear"}),
    st.just({"type": "output_audio_buffer.clear"}),
    st.builds(lambda item: {"type": "conversation.item.create", "item": item}, ITEMS),
    st.builds(
        lambda item, before: {"type": "conversation.item.create", "item": item, "previous_item_id": before}, ITEMS, st.none() | ITEM_IDS
    ),
    st.builds(lambda id: {"type": "conversation.item.retrieve", "item_id": id}, ITEM_IDS),
    st.builds(lambda id: {"type": "conversation.item.delete", "item_id": id}, ITEM_IDS),
    st.builds(
        lambda id, index, ms: {"type": "conversation.item.truncate", "item_id": id, "content_index": index, "audio_end_ms": ms},
        ITEM_IDS,
        st.integers(0, 1),
        st.integers(0, 5000),
    ),
    st.builds(lambda response: {"type": "response.create", "response": response}, RESPONSES),
    st.just({"type": "response.create"}),
    st.builds(lambda id: {"type": "response.cancel", "response_id": id}, st.none() | ITEM_IDS),
)
"""Each of the eleven client events, with values that a client may send (though not always at this moment)."""

WEIRD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from([-1, 2**53, 2**64, 10**400, 1e308, "x" * 3000, [], {}, [[]], {"": None}, [{"type": None}], "audio/pcm", "item_a"]),
    st.recursive(
        st.none() | st.integers(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything inside a JSON value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found: list[tuple[Any, ...]] = []
    for key, child in children:
        found += [(*path, key), *places(child, (*path, key))]
    return found


@st.composite
def nearly_valid(draw: st.DrawFn, events: st.SearchStrategy[Event] = VALID) -> Event:
    """A valid event with up to three things in it dropped, replaced, doubled, renamed or added."""
    event: Event = copy.deepcopy(draw(events))
    for _ in range(draw(st.integers(1, 3))):
        paths = places(event)
        if not paths:
            break
        *way, last = draw(st.sampled_from(paths))
        holder: Any = event
        for key in way:
            holder = holder[key]
        match draw(st.sampled_from(["drop", "replace", "double", "rename", "add"])):
            case "drop":
                del holder[last]
            case "replace":
                holder[last] = copy.deepcopy(draw(WEIRD))
            case "double":
                holder[last] = [holder[last], holder[last]]
            case "rename" if isinstance(holder, dict):
                holder[draw(st.text(max_size=10))] = holder.pop(last)
            case _ if isinstance(holder, dict):
                holder[draw(st.sampled_from(["type", "id", "event_id", "audio", "extra", "", "\x00"]))] = copy.deepcopy(draw(WEIRD))
            case _:
                holder.append(copy.deepcopy(draw(WEIRD)))
    return event


def written(event: Event) -> str:
    """The event as JSON text; numbers without end stay what they are in JavaScript's ears: NaN, Infinity."""
    return json.dumps(event)


@st.composite
def mutated(draw: st.DrawFn, recording: list[bytes]) -> list[bytes]:
    """A run of recorded client events with some of them dropped, doubled, swapped, cut short, spliced or with bytes changed."""
    start = draw(st.integers(0, max(0, len(recording) - 1)))
    events = list(recording[start : start + draw(st.integers(1, 40))])
    for _ in range(draw(st.integers(1, 12))):
        if not events:
            break
        here, there = (draw(st.integers(0, len(events) - 1)) for _ in range(2))
        one, other = events[here], events[there]
        match draw(st.sampled_from(["drop", "double", "swap", "cut", "splice", "flip"])):
            case "drop":
                del events[here]
            case "double":
                events.insert(there, one)
            case "swap":
                events[here], events[there] = other, one
            case "cut":
                events[here] = one[: draw(st.integers(0, len(one)))]
            case "splice":
                events[here] = one[: draw(st.integers(0, len(one)))] + other[draw(st.integers(0, len(other))) :]
            case _ if one:
                at = draw(st.integers(0, min(len(one) - 1, 200)))
                events[here] = one[:at] + bytes([draw(st.integers(0, 255))]) + one[at + 1 :]
    return events
