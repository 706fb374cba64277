"""The beta shape of the realtime protocol, translated at the edge: the session core speaks today's only.

Clients that send `OpenAI-Beta: realtime=v1` write a flat session and read older event and content names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from ..sessions import server_events as wire
from ..sessions.server_events import ServerEvent, encode_audio_delta, encode_event, event_type

Json: TypeAlias = dict[str, Any]

_FORMATS = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
_BETA_FORMATS = {name: beta for beta, name in _FORMATS.items()}

_PLACES = {
    "modalities": "output_modalities",
    "max_response_output_tokens": "max_output_tokens",
    "input_audio_format": "audio.input.format",
    "input_audio_transcription": "audio.input.transcription",
    "input_audio_noise_reduction": "audio.input.noise_reduction",
    "turn_detection": "audio.input.turn_detection",
    "output_audio_format": "audio.output.format",
    "voice": "audio.output.voice",
    "speed": "audio.output.speed",
}
"""Where the fields of the beta's flat session (and of its response parameters) stand today."""

_EVENTS = {
    "response.output_text.delta": "response.text.delta",
    "response.output_text.done": "response.text.done",
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
    "conversation.item.added": "conversation.item.created",
}
_PARTS = {"output_text": "text", "output_audio": "audio"}


class _Typed(msgspec.Struct):
    type: str = ""


_peek = msgspec.json.Decoder(_Typed).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class BetaShim:
    """Translates one connection's events, both ways. Keeps nothing; what it does not know it lets through."""

    # ---- from the client ----------------------------------------------------------------------------------------------

    def inbound(self, raw: bytes) -> bytes:
        """A client event in today's shape. What cannot be read is left as it is: the session answers with the error."""
        try:
            kind = _peek(raw).type
            if kind not in _INBOUND:
                return raw
            event = _decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return raw
        _INBOUND[kind](event)
        return _encode(event)

    # ---- to the client ------------------------------------------------------------------------------------------------

    def outbound(self, event: ServerEvent) -> list[bytes]:
        """A server event in the beta's shape; none where the beta has no such event."""
        data = self.encode(event)
        return [] if data is None else [data]

    def encode(self, event: ServerEvent) -> bytes | None:
        """As `outbound`: no server event becomes more than one of the beta."""
        match event:
            case wire.OutputAudioDelta():
                return encode_audio_delta(event, b"response.audio.delta")
            case wire.ConversationItemDone():
                return None
            case wire.SessionCreated() | wire.SessionUpdated():
                return _renamed(msgspec.structs.replace(event, session=_flat_session(event.session)), _session_event(event))
            case wire.ConversationItemAdded() | wire.ConversationItemRetrieved() | wire.OutputItemAdded() | wire.OutputItemDone():
                event = msgspec.structs.replace(event, item=_beta_item(event.item))
            case wire.ResponseCreated() | wire.ResponseDone():
                event = msgspec.structs.replace(event, response=_flat_response(event.response))
            case wire.ErrorEvent():
                event = msgspec.structs.replace(event, error=msgspec.structs.replace(event.error, **_beta_words(event.error)))
        return _renamed(event, _EVENTS.get(event_type(event)))


# ---- client events --------------------------------------------------------------------------------------------------


def _session_update(event: Json) -> None:
    if isinstance(event.get("session"), dict):
        event["session"] = _nested(event["session"])


def _transcription_session_update(event: Json) -> None:
    event["type"] = "session.update"
    session = event.get("session")
    if isinstance(session, dict):
        # The beta's transcription session lists modalities that have no meaning.
        event["session"] = {"type": "transcription", **_nested({k: v for k, v in session.items() if k != "modalities"})}


def _response_create(event: Json) -> None:
    if isinstance(event.get("response"), dict):
        event["response"] = _nested(event["response"])


_INBOUND: dict[str, Callable[[Json], None]] = {
    "session.update": _session_update,
    "transcription_session.update": _transcription_session_update,
    "response.create": _response_create,
}


def _nested(flat: Json) -> Json:
    """A flat session, or flat response parameters, in today's places. Keys that are there already stay."""
    nested: Json = {}
    for key, value in flat.items():
        place = nested
        *folders, name = _PLACES.get(key, key).split(".")
        for folder in folders:
            inner = place.setdefault(folder, {})
            if not isinstance(inner, dict):
                # Both shapes at once, and the nested one is no object: leave it for the session to refuse.
                break
            place = inner
        else:
            place[name] = _current(key, value)
    return nested


def _current(key: str, value: Any) -> Any:
    """A beta field's value in today's words."""
    if key in ("input_audio_format", "output_audio_format") and isinstance(value, str):
        return {"type": _FORMATS.get(value, value)}
    if key == "turn_detection" and isinstance(value, dict) and value.get("type") == "none":
        return None
    if key == "tool_choice" and isinstance(value, dict) and isinstance(value.get("function"), dict):
        return {"type": "function", "name": value["function"].get("name")}
    return value


# ---- server events --------------------------------------------------------------------------------------------------


def _renamed(event: ServerEvent, name: str | None) -> bytes:
    """The event as JSON text under another name: the type is the first key."""
    data = encode_event(event)
    return data if name is None else b'{"type":"' + name.encode() + data[data.index(b'"', 9) :]


def _session_event(event: wire.SessionCreated | wire.SessionUpdated) -> str | None:
    if event.session.get("type") != "transcription":
        return None
    return "transcription_session.created" if isinstance(event, wire.SessionCreated) else "transcription_session.updated"


def _flat_session(session: Json) -> Json:
    """The session object as the beta shows it."""
    heard = session["audio"]["input"]
    flat: Json = {
        "id": session["id"],
        "object": session["object"],
        "expires_at": session["expires_at"],
        "input_audio_format": _beta_format(heard["format"]),
        "input_audio_transcription": heard["transcription"],
        "input_audio_noise_reduction": heard["noise_reduction"],
        "turn_detection": heard["turn_detection"],
        "include": session["include"],
    }
    if session["type"] == "transcription":
        return flat
    output = session["audio"]["output"]
    voice = output["voice"]
    return flat | {
        "model": session["model"],
        "modalities": _modalities(session["output_modalities"]),
        "instructions": session["instructions"],
        "voice": voice["id"] if isinstance(voice, dict) else voice,
        "output_audio_format": _beta_format(output["format"]),
        "speed": output["speed"],
        "tools": session["tools"],
        "tool_choice": _beta_choice(session["tool_choice"]),
        "temperature": session.get("temperature"),
        "max_response_output_tokens": session["max_output_tokens"],
        "tracing": session["tracing"],
        "prompt": session["prompt"],
    }


def _flat_response(response: Json) -> Json:
    """The response object as the beta shows it."""
    flat = {key: value for key, value in response.items() if key not in ("audio", "output_modalities")}
    output = (response.get("audio") or {}).get("output") or {}
    voice = output.get("voice")
    flat["modalities"] = _modalities(response.get("output_modalities") or [])
    flat["voice"] = voice["id"] if isinstance(voice, dict) else voice
    flat["output_audio_format"] = _beta_format(output.get("format") or {})
    flat["output"] = [_beta_item(item) for item in response.get("output") or []]
    return flat


def _beta_item(item: Json) -> Json:
    if "content" not in item:
        return item
    return item | {"content": [part | {"type": _PARTS.get(part["type"], part["type"])} for part in item["content"]]}


def _beta_words(error: wire.ErrorBody) -> dict[str, str | None]:
    """An error's path as the client wrote it: `session.audio.output.voice` was `session.voice`."""
    if error.param is None:
        return {}
    for beta, place in _PLACES.items():
        for root in ("session", "response"):
            path = f"{root}.{place}"
            if error.param == path or error.param.startswith((f"{path}.", f"{path}[")):
                param = f"{root}.{beta}{error.param[len(path) :]}"
                return {"param": param, "message": error.message.replace(f"'{error.param}'", f"'{param}'")}
    return {}


def _beta_format(format_: Json) -> str:
    return _BETA_FORMATS.get(format_.get("type", ""), "pcm16")


def _beta_choice(choice: Any) -> Any:
    return {"type": "function", "function": {"name": choice["name"]}} if isinstance(choice, dict) else choice


def _modalities(modalities: list[str]) -> list[str]:
    """Spoken answers carry their text: the beta lists both."""
    return ["text"] if modalities == ["text"] else ["audio", "text"]
