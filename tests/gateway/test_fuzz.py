"""Whatever a client sends, its session lives on, every mistake is answered, and nobody else notices.

The server is a process of its own (`tone_server`), which must show no fault in its metrics or its log when the module is done.
`HYPOTHESIS_PROFILE=thorough` looks longer.
"""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from antiphon.sessions.commands import Send
from antiphon.sessions.inbound import ClientMessage, Disconnected, Tick
from antiphon.sessions.recording import RecordingHeader, Step, read_recording, session_of
from antiphon.sessions.server_events import encode_event
from antiphon.tests.gateway.fuzzing import VALID, mutated, nearly_valid, written
from antiphon.tests.gateway.outside import QUIET, TONE, Outside, append, ask, eventually, frame
from antiphon.tests.sessions.grammar import Grammar
from antiphon.tests.sessions.profile import bounded
from hypothesis import given
from hypothesis import strategies as st
from websockets.sync.client import ClientConnection, connect

PATIENCE = 20
Event = dict[str, Any]


@contextlib.contextmanager
def connection(server: Outside, query: str = "", **headers: str) -> Iterator[Peer]:
    """A connection that has said hello."""
    url = server.ws + query
    with connect(
        url, compression=None, max_size=None, max_queue=None, additional_headers=headers, ping_interval=None, proxy=None
    ) as socket:
        yield Peer(socket)


class Peer:
    """A client that keeps what it got."""

    count = 0

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[Event] = []
        self._settled = 0

    def send(self, event: Event) -> None:
        self.socket.send(written(event))

    def read(self) -> Event:
        event: Event = json.loads(self.socket.recv(timeout=PATIENCE))
        self.events.append(event)
        return event

    def until(self, kind: str) -> Event:
        while (event := self.read())["type"] != kind:
            pass
        return event

    def settle(self) -> list[Event]:
        """Everything that the server has said since the last time, up to now: asked for with an event whose answer is known."""
        Peer.count += 1
        mark = f"settle_{Peer.count}"
        self.send({"type": "response.cancel", "response_id": "nobody", "event_id": mark})
        while True:
            event = self.read()
            if event["type"] == "error" and event["error"]["event_id"] == mark:
                since, self._settled = self._settled, len(self.events)
                return self.events[since:-1]

    def converse(self) -> None:
        """The session still answers."""
        self.send({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text"], "tools": []}})
        self.send({"type": "response.cancel"})
        for event in ask("Are you there?", conversation="none", output_modalities=["text"], input=None):
            self.send(event)
        while (done := self.until("response.done"))["response"]["conversation_id"] is not None:
            pass
        assert done["response"]["status"] == "completed", done


def errors(events: list[Event]) -> list[Event]:
    """The errors among some events; each has a code and a sentence."""
    found = [event["error"] for event in events if event["type"] == "error"]
    for error in found:
        assert error["code"]
        assert error["message"]
        assert error["type"] in ("invalid_request_error", "server_error")
    return found


FLAVOURS = {"today": ("", {}), "beta": ("", {"OpenAI-Beta": "realtime=v1"}), "transcription": ("&intent=transcription", {})}


@pytest.mark.parametrize("flavour", FLAVOURS)
@bounded(80, 3000)
@given(events=st.lists(st.one_of(VALID, nearly_valid()), min_size=1, max_size=25))
def test_events_of_any_shape(tone_server: Outside, flavour: str, events: list[Event]) -> None:
    query, headers = FLAVOURS[flavour]
    with connection(tone_server, query, **headers) as peer:
        for number, event in enumerate(events):
            peer.send(event | {"event_id": f"ev_{number}"})
        answers = peer.settle()
        assert {error["event_id"] for error in errors(answers)} <= {f"ev_{number}" for number in range(len(events))}
        if flavour == "today":
            grammar = Grammar()
            for answer in answers:
                grammar.take(answer)


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=10) | st.sampled_from(["response.create", "session.update"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["type", "event_id", "session", "item", "x"]), inner, max_size=4)
    ),
    max_leaves=10,
).map(json.dumps)
PIECES = st.lists(
    st.sampled_from(
        ['{"type":', '"session.update"', ",", '"session":{', "}", "[", "]", '"', "\\u", "\\ud800", "NaN", "1e999", "\x00", "{}", " "]
    ),
    max_size=12,
).map("".join)


@bounded(80, 3000)
@given(frames=st.lists(st.one_of(st.text(), JSON_LIKE, PIECES, st.binary(max_size=50)), min_size=1, max_size=25))
def test_text_and_bytes_that_are_no_events(tone_server: Outside, frames: list[str | bytes]) -> None:
    with connection(tone_server) as peer:
        for data in frames:
            peer.socket.send(data)
        assert sum(error["code"] == "invalid_frame" for error in errors(peer.settle())) == sum(isinstance(data, bytes) for data in frames)


# ---- what one event may cost ----------------------------------------------------------------------------------------


class Onlooker:
    """Another client of the server, who measures how long it is kept waiting."""

    def __init__(self, server: Outside) -> None:
        self._url = f"{server.url}/livez"
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.longest = 0.0

    def __enter__(self) -> Onlooker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(PATIENCE)

    def _look(self) -> None:
        with httpx.Client(trust_env=False, timeout=60) as http:
            while not self._ends.is_set():
                began = time.monotonic()
                http.get(self._url)
                self.longest = max(self.longest, time.monotonic() - began)
                self._ends.wait(0.01)


def item(*content: Event) -> Event:
    return {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": list(content)}, "event_id": "e"}


SPOKEN = {"type": "input_audio", "audio": "AAAAAAAA"}
HEAVY: dict[str, tuple[Callable[[], str], set[str]]] = {
    "a key of two million letters": (
        lambda: written({"type": "response.create", "event_id": "e", "response": {"metadata": {"k" * 2_000_000: "v"}}}),
        {"invalid_value"},
    ),
    "an unknown key of two million letters": (
        lambda: written({"type": "session.update", "event_id": "e", "session": {"type": "realtime", "k" * 2_000_000: 1}}),
        {"unknown_parameter"},
    ),
    "a string of ten million letters": (
        lambda: written({"type": "session.update", "event_id": "e", "session": {"type": "realtime", "instructions": "x" * 10_000_000}}),
        {"invalid_value"},
    ),
    "seven million empty lists": (
        lambda: '{"type":"session.update","event_id":"e","session":{"x":[' + "[]," * 6_900_000 + "[]]}}",
        {"event_too_large"},
    ),
    "a tower of forty thousand objects": (
        lambda: '{"type":"session.update","event_id":"e","session":' + '{"a":' * 40_000 + "1" + "}" * 40_001,
        {"invalid_json"},
    ),
    "a response to fifty thousand spoken items": (
        lambda: written(
            {"type": "response.create", "event_id": "e", "response": {"input": [item(SPOKEN)["item"]] * 50_000}},
        ),
        {"event_too_large"},
    ),
    "a response to ten thousand spoken items": (
        lambda: written(
            {"type": "response.create", "event_id": "e", "response": {"input": [item(SPOKEN)["item"]] * 10_000}},
        ),
        {"invalid_value"},
    ),
    "an item of thirty thousand parts": (lambda: written(item(*[{"type": "input_text", "text": ""}] * 30_000)), {"invalid_value"}),
    "a number of five thousand digits": (
        lambda: '{"event_id":"e","type":"conversation.item.truncate","item_id":"x","content_index":0,"audio_end_ms":' + "9" * 5000 + "}",
        {"invalid_json"},
    ),
    "half an event": (lambda: '{"type":"session.update","event_id":"e","session":{"instructions":"', {"invalid_json"}),
    "keys twice": (lambda: '{"type":"nonsense","type":"response.cancel","event_id":"x","event_id":"e"}', {"response_cancel_not_active"}),
    "numbers without end": (
        lambda: '{"type":"response.create","event_id":"e","response":{"temperature":NaN,"metadata":Infinity}}',
        {"invalid_value"},
    ),
    "half a surrogate": (lambda: '{"event_id":"e","type":"response.cancel","response_id":"\\ud800"}', {"invalid_json"}),
    "a session below nought and above all": (
        lambda: written(
            {
                "type": "session.update",
                "event_id": "e",
                "session": {"type": "realtime", "audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": -(10**300)}}}},
            }
        ),
        {"invalid_value"},
    ),
}


@pytest.mark.parametrize("name", HEAVY)
def test_a_heavy_event_is_answered_and_holds_nobody_up(tone_server: Outside, name: str) -> None:
    make, codes = HEAVY[name]
    text = make()
    with connection(tone_server) as peer, Onlooker(tone_server) as onlooker:
        peer.settle()
        peer.socket.send(text)
        found = errors(peer.settle())
        assert {error["code"] for error in found} == codes
        assert {error["event_id"] for error in found} == {"e"}
        peer.converse()
    assert onlooker.longest < 1.5  # it took 4 s and more before there were bounds; on a quiet machine it is 0.1 s


def test_a_word_without_an_end_is_spoken_in_pieces(tone_server: Outside) -> None:
    with connection(tone_server) as peer, Onlooker(tone_server) as onlooker:
        for event in ask("a" * 40_000):
            peer.send(event)
        peer.until("response.output_audio.delta")
        peer.send({"type": "response.cancel"})
        assert peer.until("response.done")["response"]["status"] == "cancelled"
    assert onlooker.longest < 1.5


def test_thousands_of_tiny_events(tone_server: Outside) -> None:
    with connection(tone_server) as peer, Onlooker(tone_server) as onlooker:
        peer.send({"type": "session.update", "session": {"type": "realtime", "audio": {"input": {"turn_detection": None}}}})
        for number in range(6000):
            peer.socket.send('{"type":"input_audio_buffer.clear"}' if number % 2 else "{}")
        while peer.until("error")["error"]["code"] != "rate_limit_exceeded":
            pass
        time.sleep(1.5)  # the rest of them is dropped, and the bucket fills again
        answers = peer.settle()
        assert {error["code"] for error in errors(answers)} == {"missing_required_parameter", "rate_limit_exceeded"}
        assert sum(event["type"] == "input_audio_buffer.cleared" for event in answers) > 1500
        peer.converse()
    assert onlooker.longest < 1.5


def test_small_questions_with_large_answers(tone_server: Outside) -> None:
    """The answers to what is asked in one go are far larger than the outbox; a client that reads gets them all."""
    with connection(tone_server) as peer:
        peer.send(item({"type": "input_audio", "audio": base64.b64encode(bytes(600_000)).decode()}) | {"event_id": "big"})
        item_id = peer.until("conversation.item.done")["item"]["id"]
        for _ in range(40):
            peer.send({"type": "conversation.item.retrieve", "item_id": item_id})
        answers = peer.settle()
        assert not errors(answers)
        assert sum(event["type"] == "conversation.item.retrieved" for event in answers) == 40


# ---- mutated recordings ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tone_server: Outside) -> tuple[RecordingHeader, list[Step]]:
    """The recording of a session that uses everything: speech, an interruption, tools, items, every event there is."""
    sent: list[Event] = [
        {"type": "session.update", "session": {"type": "realtime", "tools": [{"type": "function", "name": "look_up", "parameters": {}}]}},
        *ask("call look_up {}"),
        {"type": "conversation.item.create", "item": {"id": "out", "type": "function_call_output", "call_id": "c", "output": "42"}},
        *ask("Tell me something long, so that it can be talked over for a while. " * 3),
        *[append(audio) for audio in [QUIET] * 3 + [TONE] * 12 + [QUIET] * 8],
        {"type": "response.create", "response": {"conversation": "none", "output_modalities": ["text"], "metadata": {"a": "b"}}},
        {"type": "conversation.item.retrieve", "item_id": "out"},
        {"type": "conversation.item.truncate", "item_id": "out", "content_index": 0, "audio_end_ms": 10},
        {"type": "conversation.item.delete", "item_id": "out"},
        {
            "type": "session.update",
            "session": {"type": "realtime", "audio": {"input": {"turn_detection": None, "format": {"type": "audio/pcmu"}}}},
        },
        *[append(TONE)] * 3,
        {"type": "input_audio_buffer.commit"},
        {"type": "response.create"},
        {"type": "response.cancel"},
        {"type": "input_audio_buffer.clear"},
        {"type": "output_audio_buffer.clear"},
    ]
    with connection(tone_server) as peer:
        session_id = peer.until("session.created")["session"]["id"]
        for number, event in enumerate(sent):
            peer.send(event | {"event_id": f"rec_{number}"})
            if event["type"].endswith("append"):
                time.sleep(0.02)
        peer.settle()
    path = tone_server.recordings / f"{session_id}.antiphon"
    eventually(lambda: isinstance(read_recording(path.read_bytes())[1][-1].inbound, Disconnected))
    return read_recording(path.read_bytes())


@bounded(80, 3000)
@given(data=st.data())
def test_mutated_recordings(tone_server: Outside, recorded: tuple[RecordingHeader, list[Step]], data: st.DataObject) -> None:
    events = data.draw(mutated([step.inbound.raw for step in recorded[1] if isinstance(step.inbound, ClientMessage)]))
    with connection(tone_server) as peer:
        for raw in events:
            peer.socket.send(raw.decode(errors="replace"))
        answers = peer.settle()
        errors(answers)
        grammar = Grammar()
        for answer in answers:
            grammar.take(answer)


@bounded(80, 3000)
@given(data=st.data())
def test_the_core_survives_what_its_engines_and_clients_say_in_any_order(
    recorded: tuple[RecordingHeader, list[Step]], data: st.DataObject
) -> None:
    """Everything that went into the session, VAD scores, transcripts and engine chunks included, mutated in the same way."""
    header, steps = recorded
    happened = [step.inbound for step in steps if step.inbound is not None]
    start = data.draw(st.integers(0, len(happened) - 1))
    events = happened[:start]
    for _ in range(data.draw(st.integers(0, 20))):
        at = data.draw(st.integers(0, len(events)))
        events.insert(at, happened[data.draw(st.integers(0, len(happened) - 1))])
    for _ in range(data.draw(st.integers(0, 20))):
        if events:
            del events[data.draw(st.integers(0, len(events) - 1))]
    session = session_of(header)
    grammar = Grammar()
    now = 0.0
    for inbound in [None, *events]:
        now += data.draw(st.sampled_from([0.0, 0.001, 0.02, 0.3]))
        out = session.open(now) if inbound is None else session.handle(inbound, now)
        if (deadline := session.next_deadline(now)) is not None and deadline <= now:
            out += session.handle(Tick(), now)
            deadline = session.next_deadline(now)
            assert deadline is None or deadline > now, "what is due stays due: the server would spin"
        for send in out:
            if isinstance(send, Send):
                grammar.take(json.loads(encode_event(send.event)))


# ---- below the events -----------------------------------------------------------------------------------------------

FRAMES = st.builds(
    lambda payload, opcode, fin, masked: frame(payload, opcode, fin=fin, masked=masked),
    st.one_of(st.binary(max_size=140), st.just(b'{"type":"input_audio_buffer.clear"}')),
    st.integers(0, 15) | st.just(1),
    st.booleans(),
    st.booleans() | st.just(True),
)


@bounded(80, 3000)
@given(data=st.lists(st.one_of(FRAMES, st.binary(max_size=30)), min_size=1, max_size=10))
def test_bytes_that_are_no_frames_cost_their_own_connection_at_most(tone_server: Outside, data: list[bytes]) -> None:
    raw = tone_server.raw()
    assert raw.handshake().startswith(b"HTTP/1.1 101")
    with contextlib.suppress(OSError):
        for part in data:
            raw.sock.sendall(part)
    raw.reset()
    with connection(tone_server) as peer:
        peer.settle()


UPGRADE = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
TARGET = b"GET /v1/realtime?model=tone HTTP/1.1\r\nHost: x\r\n"
HANDSHAKES = {
    "a subprotocol that is not ASCII": TARGET + b"Sec-WebSocket-Protocol: realtime, \xff\r\n" + UPGRADE + b"\r\n",
    "a key that is not base64": TARGET + UPGRADE.replace(b"dGhlIHNhbXBsZSBub25jZQ==", b"x") + b"\r\n",
    "no key": TARGET + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    "another method": TARGET.replace(b"GET", b"POST") + UPGRADE + b"\r\n",
    "two hundred headers": TARGET + b"".join(b"X-%d: y\r\n" % number for number in range(200)) + UPGRADE + b"\r\n",
    "a query of nine thousand letters": TARGET.replace(b"tone", b"m" * 9000) + UPGRADE + b"\r\n",
    "a path that is not ASCII": TARGET.replace(b"tone", b"\xff") + UPGRADE + b"\r\n",
    "another path": TARGET.replace(b"realtime", b"elsewhere") + UPGRADE + b"\r\n",
    "headers of a megabyte": TARGET + b"".join(b"X-%d: %b\r\n" % (number, b"y" * 1000) for number in range(1000)) + UPGRADE + b"\r\n",
    "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10,
}


@pytest.mark.parametrize("name", HANDSHAKES)
def test_a_handshake_that_is_none_is_refused_at_once(tone_server: Outside, name: str) -> None:
    before = tone_server.footprint().descriptors
    raw = tone_server.raw()
    raw.sock.settimeout(3)
    with contextlib.suppress(OSError):  # it may refuse before it has read everything
        raw.sock.sendall(HANDSHAKES[name])
    answer = b""
    with contextlib.suppress(ConnectionError):
        while part := raw.sock.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 4") or (not answer and "megabyte" in name)
    raw.sock.close()
    eventually(lambda: tone_server.footprint().descriptors <= before)


def test_pings_that_nobody_reads_the_answers_of_do_not_pile_up(tone_server: Outside) -> None:
    raw = tone_server.raw(receive_buffer=4096)
    assert raw.handshake().startswith(b"HTTP/1.1 101")
    before = tone_server.footprint().rss_mb
    pings = frame(b"x" * 125, 9) * 1000
    for _ in range(150):
        raw.sock.sendall(pings)
    assert tone_server.footprint().rss_mb - before < 8  # of 20 MB
    raw.reset()


def test_a_message_of_endless_empty_frames_is_cut(tone_server: Outside) -> None:
    raw = tone_server.raw()
    assert raw.handshake().startswith(b"HTTP/1.1 101")
    with contextlib.suppress(OSError):
        raw.sock.sendall(frame(b"", 1, fin=False))
        for _ in range(30):
            raw.sock.sendall(frame(b"", 0, fin=False) * 1000)
    assert b"\x88" in raw.drain()  # a close frame
