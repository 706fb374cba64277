"""Random histories of a session: DESIGN's invariants 1-4 and 8, the protocol's grammar, quiescence and replay.

Clients, the VAD engine, pipelines (with chunks that come late), failures, slow transports and the clock are interleaved at
random. `Driver` checks each event that leaves; the invariants here look at the whole.
"""

from __future__ import annotations

import base64
from typing import Any

import hypothesis.strategies as st
from antiphon.sessions import commands as c
from antiphon.sessions import inbound as i
from antiphon.sessions.input_audio import to_samples
from antiphon.sessions.policy import SessionLimits, TurnTakingPolicy
from antiphon.tests.sessions.driver import RATE, Call, Driver, End, Left, Say, Write, flat, replay, silence, sound
from antiphon.tests.sessions.profile import THOROUGH, bounded
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

LIMITS = SessionLimits(
    max_items=12,
    item_audio_ms=20_000,
    input_buffer_ms=6_000,
    hold_above_ms=3_000,
    hold_below_ms=1_000,
    transcript_wait_ms=5_000,
    max_responses=4,
    responses_per_minute=120,
)
POLICIES = {
    "default": TurnTakingPolicy(),
    "at the first edge": TurnTakingPolicy(confirm_ms=0),
    "without words": TurnTakingPolicy(overlap_words=False),
    "answers silence": TurnTakingPolicy(skip_silent_turns=False, resume_ms=0),
}
WORDS = st.sampled_from(["", "mm-hm", "stop", "what is the time", "hold on a second please", "yeah right"])
SPEECH = "one two three four five six seven eight"
LONGEST_CHUNK_MS = 2_000
ITEM_IDS = st.sampled_from(["msg_1", "msg_2", "msg_3", "root"])
DETECTIONS: list[dict[str, Any] | None] = [
    None,
    {"type": "server_vad"},
    {"type": "server_vad", "create_response": False},
    {"type": "server_vad", "interrupt_response": False},
    {"type": "server_vad", "idle_timeout_ms": 5000, "silence_duration_ms": 200, "prefix_padding_ms": 0},
    {"type": "semantic_vad", "eagerness": "high"},
    {"type": "semantic_vad", "eagerness": "low", "interrupt_response": False},
]


class SessionMachine(RuleBasedStateMachine):
    """See the module's docstring."""

    @initialize(
        policy=st.sampled_from(sorted(POLICIES)),
        text=st.booleans(),
        g711=st.booleans(),
        transcription=st.booleans(),
        detection=st.sampled_from(DETECTIONS),
    )
    def begin(self, policy: str, text: bool, g711: bool, transcription: bool, detection: Any) -> None:
        self.settings: dict[str, Any] = {
            "policy": POLICIES[policy],
            "limits": LIMITS,
            "session": {
                "output_modalities": ["text"] if text else ["audio"],
                "audio": {
                    "input": {"transcription": {"model": "m"} if transcription else None, "turn_detection": detection},
                    "output": {"format": {"type": "audio/pcmu" if g711 else "audio/pcm"}},
                },
            },
        }
        self.driver = Driver(auto=False, late_chunks=True, **self.settings)
        self.opening = len(self.driver.outbound)
        self.alive = True
        self.fences = 0

    # ---- the client -------------------------------------------------------------------------------------------------

    def items(self) -> list[str]:
        return [item.id for item in self.driver.session.conversation]

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from([*self.items(), "item_unknown"]), label="item")

    @precondition(lambda self: self.alive)
    @rule(after=st.none() | ITEM_IDS, item_id=st.none() | ITEM_IDS, kind=st.sampled_from(["text", "audio", "assistant", "output"]))
    def create_item(self, after: str | None, item_id: str | None, kind: str) -> None:
        item: dict[str, Any] = {"type": "message", "role": "user"}
        if kind == "text":
            item["content"] = [{"type": "input_text", "text": "typed"}]
        elif kind == "audio":
            item["content"] = [{"type": "input_audio", "audio": base64.b64encode(sound(200)).decode()}]
        elif kind == "assistant":
            item |= {"role": "assistant", "content": [{"type": "output_text", "text": "I said so."}]}
        else:
            item = {"type": "function_call_output", "call_id": "call_1", "output": "12"}
        if item_id == "root":
            item_id = next((left.event["item_id"] for left in self.driver.left[::-1] if left.type.endswith("speech_started")), None)
        if item_id is not None:
            item["id"] = item_id
        fields = {"previous_item_id": after} if after is not None else {}
        self.driver.client("conversation.item.create", item=item, **fields)

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), ms=st.sampled_from([0, 1, 40, 333, 1500, 100_000]), verb=st.sampled_from(["truncate", "delete", "retrieve"]))
    def on_item(self, data: st.DataObject, ms: int, verb: str) -> None:
        fields: dict[str, Any] = {"item_id": self.pick(data)}
        if verb == "truncate":
            fields |= {"content_index": 0, "audio_end_ms": ms}
        self.driver.client(f"conversation.item.{verb}", **fields)

    @precondition(lambda self: self.alive)
    @rule(
        data=st.data(),
        out_of_band=st.booleans(),
        given_input=st.sampled_from(["absent", "empty", "reference", "audio"]),
        modality=st.sampled_from([None, "text", "audio"]),
    )
    def create_response(self, data: st.DataObject, out_of_band: bool, given_input: str, modality: str | None) -> None:
        response: dict[str, Any] = {"metadata": {"n": "1"}}
        if out_of_band:
            response["conversation"] = "none"
        if modality is not None:
            response["output_modalities"] = [modality]
        if given_input == "empty":
            response["input"] = []
        elif given_input == "reference":
            response["input"] = [{"type": "item_reference", "id": self.pick(data)}]
        elif given_input == "audio":
            part = {"type": "input_audio", "audio": base64.b64encode(sound(200)).decode()}
            response["input"] = [{"type": "message", "role": "user", "id": "given", "content": [part]}]
        self.driver.client("response.create", response=response)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def cancel_response(self, data: st.DataObject) -> None:
        response_id = data.draw(st.sampled_from([None, "resp_unknown", *self.driver.grammar.responses]), label="response")
        self.driver.client("response.cancel", **({"response_id": response_id} if response_id else {}))

    @precondition(lambda self: self.alive)
    @rule(kind=st.sampled_from(["input_audio_buffer.commit", "input_audio_buffer.clear", "output_audio_buffer.clear"]))
    def buffers(self, kind: str) -> None:
        self.driver.client(kind)

    @precondition(lambda self: self.alive)
    @rule(detection=st.sampled_from(DETECTIONS), g711=st.booleans(), transcription=st.sampled_from([None, {"model": "m"}]))
    def update(self, detection: Any, g711: bool, transcription: Any) -> None:
        kind = "audio/pcma" if g711 else "audio/pcm"
        audio_in = {"turn_detection": detection, "format": {"type": kind}, "transcription": transcription}
        self.driver.client("session.update", session={"type": "realtime", "audio": {"input": audio_in}})

    @precondition(lambda self: self.alive)
    @rule(raw=st.sampled_from([b"", b"{", b"[]", b'{"type":"no"}', b'{"type":"response.cancel","x":1}', b"\xff\x00"]))
    def nonsense(self, raw: bytes) -> None:
        before = len(self.driver.left) + len(self.driver.outbox)
        self.driver.feed(i.ClientMessage(raw))
        self.driver.feed(i.BadFrame("invalid_frame", "Binary frames are not client events."))
        assert len(self.driver.left) + len(self.driver.outbox) >= before + 2

    # ---- the caller -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.alive)
    @rule(frames=st.integers(1, 30), probability=st.sampled_from([0.0, 0.4, 0.9]))
    def hear(self, frames: int, probability: float) -> None:
        self.driver.hear(frames * 32, probability)

    @precondition(lambda self: self.alive)
    @rule(ms=st.integers(1, 700))
    def hear_unscored(self, ms: int) -> None:
        """The VAD engine lags."""
        self.driver.append(silence(ms) + b"\x00" * (ms % 2))

    @precondition(lambda self: self.alive)
    @rule(probability=st.sampled_from([0.0, 0.9]))
    def score(self, probability: float) -> None:
        self.driver.score(probability)

    @precondition(lambda self: self.alive)
    @rule(ready=st.booleans())
    def vad(self, ready: bool) -> None:
        self.driver.feed(i.VadReady() if ready else i.VadLost("engine_failed", "The VAD engine failed."))
        self.driver.fed = self.driver.scored = 0

    # ---- the engines ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.alive and self.driver.questions)
    @rule(data=st.data(), words=WORDS, fails=st.integers(0, 4), probability=st.sampled_from([None, 0.1, 0.9]))
    def answer(self, data: st.DataObject, words: str, fails: int, probability: float | None) -> None:
        """An engine answers, late or after its question was cancelled."""
        open_ = [name for name in self.driver.questions if name not in self.driver.cancelled] or list(self.driver.questions)
        request_id = data.draw(st.sampled_from(open_[-5:]), label="request")
        command = self.driver.questions.pop(request_id)
        if isinstance(command, c.JudgeTurnEnd):
            self.driver.feed(i.TurnEndJudged(request_id, probability))
        elif fails == 0:
            self.driver.feed(i.TranscriptionFailed(request_id, "engine_failed", "The ASR engine failed."))
        else:
            self.driver.feed(i.Transcribed(request_id=request_id, text=words))

    def running(self) -> list[str]:
        return [name for name in self.driver.starts if name not in self.driver.held]

    @precondition(lambda self: self.alive and self.running())
    @rule(
        data=st.data(),
        kind=st.sampled_from(["say", "say", "write", "call", "end", "length", "fail"]),
        ms=st.sampled_from([0, 20, 50, 700, LONGEST_CHUNK_MS]),
        count=st.integers(0, 8),
    )
    def chunk(self, data: st.DataObject, kind: str, ms: int, count: int) -> None:
        """A pipeline gives something, perhaps one that was stopped long ago."""
        response_id = data.draw(st.sampled_from(self.running()[-4:]), label="response")
        text = "".join(f" {word}" for word in SPEECH.split()[:count])
        step = {
            "say": Say(ms, text),
            "write": Write(text),
            "call": Call("look_up", '{"a":', index=count % 2),
            "end": End(tokens=(10, count)),
            "length": End("length"),
            "fail": End(code="engine_failed"),
        }[kind]
        self.driver.chunk(response_id, step)

    # ---- whole stretches of a conversation, so that the interesting states are often reached -------------------------

    def answer_all(self, words: str) -> None:
        for request_id, command in list(self.driver.questions.items()):
            del self.driver.questions[request_id]
            if isinstance(command, c.JudgeTurnEnd):
                self.driver.feed(i.TurnEndJudged(request_id, 0.9))
            else:
                self.driver.feed(i.Transcribed(request_id=request_id, text=words))

    @precondition(lambda self: self.alive)
    @rule(words=WORDS, frames=st.integers(3, 45), pause=st.integers(1, 30), answered=st.booleans())
    def caller_speaks(self, words: str, frames: int, pause: int, answered: bool) -> None:
        self.driver.hear(frames * 32, 0.9)
        self.driver.hear(pause * 32, 0.0)
        if answered:
            self.answer_all(words)
            self.driver.hear(32, 0.0)

    @precondition(lambda self: self.alive)
    @rule(ms=st.sampled_from([60, 400, LONGEST_CHUNK_MS]), ends=st.booleans(), wait=st.sampled_from([0.0, 0.05, 0.4, 2.5]))
    def assistant_speaks(self, ms: int, ends: bool, wait: float) -> None:
        self.driver.client("response.create")
        self.answer_all("what is the time")
        for response_id in self.running()[-1:]:
            self.driver.chunk(response_id, Say(ms, SPEECH))
            if ends:
                self.driver.chunk(response_id, End())
        self.driver.run(wait)

    @precondition(lambda self: self.alive and self.spoken_items())
    @rule(ms=st.sampled_from([0, 200, 5000]), asks=st.booleans())
    def client_truncates_what_it_hears(self, ms: int, asks: bool) -> None:
        """As clients do on an interruption, perhaps with the next response under way."""
        if asks:
            self.driver.client("response.create")
        self.driver.client("conversation.item.truncate", item_id=self.spoken_items()[-1], content_index=0, audio_end_ms=ms)

    def spoken_items(self) -> list[str]:
        return [item.id for item in self.driver.session.conversation if item.spoken is not None]

    # ---- the world --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.alive)
    @rule(seconds=st.sampled_from([0.005, 0.1, 0.7, 3.0, 8.0]))
    def wait(self, seconds: float) -> None:
        self.driver.run(seconds)

    @precondition(lambda self: self.alive)
    @rule(speed=st.sampled_from([None, None, 0, 0.5, 1.5]))
    def transport(self, speed: float | None) -> None:
        """The reader stops, is slow, or catches up."""
        self.driver.set_speed(speed)

    @precondition(lambda self: self.alive)
    @rule(code=st.sampled_from(["expiring", "draining"]))
    def warn(self, code: str) -> None:
        self.driver.feed(i.Warn(code, "Something is about to happen.", 10.0))

    @precondition(lambda self: self.alive and len(self.driver.recorded) > 200)
    @rule(polite=st.booleans())
    def end(self, polite: bool) -> None:
        self.alive = False
        if polite:
            self.driver.feed(i.EndSession("session_expired", "The session is over.", 1000))
            self.driver.set_speed(None)
            assert self.driver.closed == 1000
            self.driver.grammar.finish()
        else:
            out = self.driver.feed(i.Disconnected())
            assert not any(isinstance(command, c.Send) for command in out)
        self.driver.gone = True

    @precondition(lambda self: not self.alive)
    @rule()
    def after_the_end(self) -> None:
        """Nothing leaves any more, whatever comes."""
        late: list[i.Inbound] = [i.Tick(), i.ClientMessage(b"{"), i.TrackAudio(sound(100)), i.AudioDelivered("resp", 1)]
        late += [i.ResponseText(response_id, start.epoch, "late") for response_id, start in self.driver.starts.items()]
        for event in late:
            assert self.driver.session.handle(event, self.driver.now) == []

    # ---- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def all_holds(self) -> None:
        self.items_stand_in_the_order_that_the_wire_tells()
        self.the_assistant_said_a_prefix_of_what_it_was_given()
        self.what_a_fence_cut_is_what_was_heard()
        self.everything_is_bounded()
        self.the_listener_is_never_far_behind()
        self.whoever_waits_has_a_deadline()

    def items_stand_in_the_order_that_the_wire_tells(self) -> None:
        if self.alive and not self.driver.outbox:
            assert self.driver.grammar.order == self.items()

    def the_assistant_said_a_prefix_of_what_it_was_given(self) -> None:
        for left in self.driver.left if self.alive else ():
            if left.type == "response.output_item.added" and left.event["item"]["type"] == "message":
                self._check_words(left)

    def _check_words(self, added: Left) -> None:
        item = self.driver.session.conversation.get(added.event["item"]["id"])
        if item is None or item.spoken is None:
            return
        chunks = [event for _, event in self.driver.recorded if isinstance(event, i.ResponseAudio)]
        given = "".join(chunk.transcript for chunk in chunks if chunk.response_id == added.event["response_id"])
        assert given.startswith(item.spoken.transcript)

    def what_a_fence_cut_is_what_was_heard(self) -> None:
        fences, self.fences = self.driver.at_fence[self.fences :], len(self.driver.at_fence)
        if not self.alive or len(fences) != 1 or fences[0][0] != "turn_detected":
            return
        heard = fences[0][1]
        for left in self.driver.left:
            if left.type == "response.output_item.added" and left.event["response_id"] in heard:
                item = self.driver.session.conversation.get(left.event["item"]["id"])
                part = item.spoken if item is not None else None
                if part is not None and part.cut_ms is not None and left.event["response_id"] not in self.truncated():
                    assert abs(part.cut_ms - heard[left.event["response_id"]]) < 20

    def truncated(self) -> set[str]:
        """Responses whose item the client cut itself, or cancelled."""
        items = {left.event["item_id"] for left in self.driver.left if left.type == "conversation.item.truncated"}
        added = [left.event for left in self.driver.left if left.type == "response.output_item.added"]
        return {event["response_id"] for event in added if event["item"]["id"] in items} | {
            left.event["response"]["id"]
            for left in self.driver.left
            if left.type == "response.done" and left.event["response"]["status_details"].get("reason") == "client_cancelled"
        }

    def everything_is_bounded(self) -> None:
        if not self.alive:
            return
        session, listener = self.driver.session, self.driver.session._listener
        ring = listener._ring
        assert ring.end - ring.begin <= to_samples(LIMITS.input_buffer_ms)
        assert sum(len(block) for block in ring._blocks) == (ring.end - ring.begin) * 2
        assert len(session.conversation) <= LIMITS.max_items + 1
        kept = sum(item.audio_bytes for item in session.conversation)
        newest = max((item.audio_bytes for item in session.conversation), default=0)
        current = session._coordinator.current
        assert kept <= LIMITS.item_audio_ms * RATE // 1000 * 2 + (newest if current is not None else 0)
        assert len(listener._transcripts._requests) <= LIMITS.max_items + 8
        assert len(listener._transcripts._items) <= LIMITS.max_items + 8
        assert len(session._coordinator._live) <= LIMITS.max_responses
        assert len(session._coordinator._queued) <= 2
        for response in session._coordinator._live.values():
            assert response.queued_ms <= LIMITS.hold_above_ms + LONGEST_CHUNK_MS
        fenced = sum(send.samples for send, _ in self.driver.outbox if send.epoch is not None)
        assert fenced <= to_samples(LIMITS.undelivered_ms)

    def the_listener_is_never_far_behind(self) -> None:
        assert self.driver.speaker.most_ahead <= to_samples(LIMITS.lead_ms) + 2

    def whoever_waits_has_a_deadline(self) -> None:
        """A response that is not done waits for its pipeline, for a transcript that has a deadline, for the clock, or for the transport."""
        if not self.alive:
            return
        coordinator = self.driver.session._coordinator
        for response in coordinator.responses:
            waits_for_pipeline = response.started and not response.generated
            if not waits_for_pipeline and self.driver.session.next_deadline(self.driver.now) is None:
                assert self.driver.outbox, f"{response.id} is stuck"

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        if self.alive:
            self.quiesce()
        assert replay(self.driver, **self.settings) == flat(self.driver)[self.opening :]

    def quiesce(self) -> None:
        """When the transport delivers and every pipeline ends, every response is done."""
        driver = self.driver
        driver.set_speed(None)
        ended: set[str] = set()
        for _ in range(40):
            driver.settle()
            todo = [name for name in driver.starts if name not in ended]
            if not todo:
                break
            for name in todo:
                ended.add(name)
                driver.chunk(name, End())
        driver.settle()
        assert not list(driver.session._coordinator.responses)
        driver.grammar.finish()
        assert driver.grammar.order == self.items()
        driver.now += 60
        assert not driver.session.busy(driver.now), driver.session.state(driver.now)


SessionMachine.TestCase.settings = bounded(200, 1500, stateful_step_count=90 if THOROUGH else 45)
TestSessionMachine = SessionMachine.TestCase
