"""response.create and response.cancel; spoken, written, out of band, with function calls; how responses end."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from antiphon.codecs import g711
from antiphon.sessions import commands as c
from antiphon.sessions import inbound as i
from antiphon.sessions.policy import SessionLimits
from antiphon.tests.sessions.driver import HELLO, Call, Driver, End, Engines, Say, Write, sound

TEXT = {"output_modalities": ["text"]}


def started(answer: list[Any] | None = None, **settings: Any) -> Driver:
    """A response is under way."""
    d = Driver(engines=Engines(answer=answer or [Say(3000, HELLO), End()]), **settings)
    d.client("response.create")
    return d


# ---- create ---------------------------------------------------------------------------------------------------------


def test_create_starts_a_response() -> None:
    d = Driver()
    created = d.client("response.create")[0]
    assert created["type"] == "response.created"
    assert created["response"]["status"] == "in_progress"
    assert created["response"]["conversation_id"] == d.of("conversation.created")[0]["conversation"]["id"]
    assert d.start().response_id == created["response"]["id"]


def test_create_tells_the_rate_limit() -> None:
    d = started(limits=SessionLimits(responses_per_minute=10))
    limit = d.last("rate_limits.updated")["rate_limits"][0]
    assert (limit["name"], limit["limit"], limit["remaining"]) == ("requests", 10, 9)


def test_create_beyond_the_rate_is_refused() -> None:
    d = Driver(limits=SessionLimits(responses_per_minute=2), engines=Engines(answer=[End()]))
    for _ in range(2):
        d.client("response.create")
        d.run(0)
    assert d.refused("response.create")["code"] == "rate_limit_exceeded"
    d.run(31)
    d.client("response.create")
    assert d.of("response.created")[-1] in [left.event for left in d.left[-3:]]


def test_create_while_an_answer_is_being_made_is_refused() -> None:
    d = Driver(engines=Engines(answer=[Say(500, HELLO)]))
    d.client("response.create")
    assert d.refused("response.create")["code"] == "conversation_already_has_active_response"


def test_create_while_the_last_words_are_spoken_follows_at_once() -> None:
    """The pipeline has finished; a client that counts on the model being faster than speech is not refused."""
    d = started()
    d.run(0.5)
    d.client("response.create", response={"metadata": {"n": "2"}})
    d.settle()
    assert "error" not in d.types
    first_done = d.types.index("response.done")
    assert d.types[first_done + 1] == "response.created"
    assert d.done()["metadata"] == {"n": "2"}


def test_only_one_response_may_wait() -> None:
    d = started()
    d.run(0.5)
    d.client("response.create")
    assert d.refused("response.create")["code"] == "conversation_already_has_active_response"


def test_overrides_apply_to_one_response_only() -> None:
    d = Driver(session={"instructions": "Be brief."}, engines=Engines(answer=[End()]))
    tool = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}
    d.client(
        "response.create",
        response={"instructions": "Be long.", "max_output_tokens": 20, "tools": [tool], "tool_choice": "required", "metadata": {"k": "v"}},
    )
    d.run(0)
    first = d.start()
    assert first.messages[0].text == "Be long."
    assert (first.max_output_tokens, first.tool_choice, first.tools[0]["name"]) == (20, "required", "look_up")
    assert d.done()["metadata"] == {"k": "v"}
    d.client("response.create")
    second = d.start()
    assert second.messages[0].text == "Be brief."
    assert (second.max_output_tokens, second.tool_choice, second.tools) == (None, "auto", ())


def test_input_replaces_the_conversation() -> None:
    d = Driver(engines=Engines(answer=[End()]))
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "kept"}]}
    d.client("conversation.item.create", item={**message, "id": "msg_1"})
    d.client("conversation.item.create", item=message)
    d.client("response.create", response={"input": []})
    d.run(0)
    assert d.start().messages == ()
    other = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "new"}]}
    d.client("response.create", response={"input": [{"type": "item_reference", "id": "msg_1"}, other]})
    assert [message.text for message in d.start().messages] == ["kept new"]
    assert len(d.session.conversation) == 2


def test_a_reference_to_an_unknown_item_is_refused() -> None:
    error = Driver().refused("response.create", response={"input": [{"type": "item_reference", "id": "item_unknown"}]})
    assert error["param"] == "response.input[0].id"


# ---- out of band ----------------------------------------------------------------------------------------------------


def out_of_band(d: Driver, **response: Any) -> str:
    d.client("response.create", response={"conversation": "none", **response})
    return str(d.last("response.created")["response"]["id"])


def test_out_of_band_writes_nothing_to_the_conversation() -> None:
    d = Driver(engines=Engines(answer=[Write("Aside."), End()]))
    out_of_band(d, **TEXT, metadata={"topic": "aside"})
    d.settle()
    assert d.done()["conversation_id"] is None
    assert d.done()["metadata"] == {"topic": "aside"}
    assert d.done()["output"][0]["content"][0]["text"] == "Aside."
    assert "conversation.item.added" not in d.types
    assert len(d.session.conversation) == 0


def test_out_of_band_responses_run_beside_each_other_and_the_answer() -> None:
    d = Driver(auto=False)
    d.client("response.create")
    ids = [out_of_band(d, **TEXT, metadata={"n": str(n)}) for n in range(3)]
    assert "error" not in d.types
    for response_id in reversed(ids):
        d.chunk(response_id, Write(f"for {response_id}"))
        d.chunk(response_id, End())
    assert [event["response"]["id"] for event in d.of("response.done")] == ids[::-1]


def test_out_of_band_responses_are_bounded() -> None:
    d = Driver(auto=False, limits=SessionLimits(max_responses=2))
    for _ in range(2):
        out_of_band(d, **TEXT)
    assert d.refused("response.create", response={"conversation": "none"})["code"] == "rate_limit_exceeded"


def test_out_of_band_with_no_input_sees_the_conversation_and_with_empty_input_nothing() -> None:
    d = Driver(auto=False)
    d.client("conversation.item.create", item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]})
    out_of_band(d)
    assert [message.text for message in d.start().messages] == ["a"]
    out_of_band(d, input=[])
    assert d.start().messages == ()


def test_out_of_band_with_speech_in_its_input_waits_for_the_words() -> None:
    d = Driver(session={"audio": {"input": {"transcription": {"model": "m"}}}}, engines=Engines(asr_delay=0.3))
    part = {"type": "input_audio", "audio": base64.b64encode(sound(300)).decode()}
    out_of_band(d, **TEXT, input=[{"type": "message", "role": "user", "id": "msg_1", "content": [part]}])
    d.run(1)
    assert [message.text for message in d.start().messages] == ["what is the time"]
    assert not [type_ for type_ in d.types if "transcription" in type_], "no item of the conversation was transcribed"


def test_two_inputs_with_the_same_item_id_are_both_transcribed() -> None:
    d = Driver(engines=Engines(asr_delay=0.3, answer=[End()]))
    part = {"type": "input_audio", "audio": base64.b64encode(sound(300)).decode()}
    item = {"type": "message", "role": "user", "id": "msg_1", "content": [part]}
    for _ in range(2):
        out_of_band(d, input=[item])
    d.settle(2)
    assert [event["response"]["status"] for event in d.of("response.done")] == ["completed", "completed"]


def test_out_of_band_survives_a_cancel_without_id() -> None:
    d = started()
    other = out_of_band(d)
    d.client("response.cancel")
    d.settle()
    ends = {event["response"]["id"]: event["response"]["status"] for event in d.of("response.done")}
    assert ends[other] == "completed"
    assert sorted(ends.values()) == ["cancelled", "completed"]


def test_out_of_band_audio_is_paced_too() -> None:
    d = Driver(engines=Engines(answer=[Say(5000, HELLO), End()]))
    out_of_band(d)
    assert sum(left.send.samples for left in d) <= 24 * 500


# ---- cancel ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_id", [True, False])
def test_cancel_ends_the_response(by_id: bool) -> None:
    d = started()
    d.run(1)
    response_id = d.start().response_id
    events = d.client("response.cancel", **({"response_id": response_id} if by_id else {}))
    assert [event["type"] for event in events][-1] == "response.done"
    assert d.done()["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
    assert d.commands(c.StopResponse)[0].response_id == response_id
    d.settle()
    assert d.types.count("response.done") == 1


def test_cancel_counts_as_heard_what_was_delivered() -> None:
    d = started(answer=[Say(4100, HELLO), End()])
    d.run(1.55)
    d.client("response.cancel")
    assert d.texts() == [("assistant", "Hello there my friend,")]


def test_cancel_before_anything_was_said() -> None:
    d = Driver(auto=False)
    d.client("response.create")
    d.client("response.cancel")
    assert d.done()["output"] == []
    assert len(d.session.conversation) == 0


def test_cancel_with_nothing_to_cancel_is_refused() -> None:
    d = Driver()
    assert d.refused("response.cancel")["code"] == "response_cancel_not_active"
    assert d.refused("response.cancel", response_id="resp_unknown")["code"] == "response_cancel_not_active"


def test_cancel_of_a_response_that_is_over_is_refused() -> None:
    d = started()
    d.settle()
    assert d.refused("response.cancel", response_id=d.start().response_id)["code"] == "response_cancel_not_active"


def test_cancel_of_the_next_answer_lets_the_one_before_be_heard_to_its_end() -> None:
    d = Driver(engines=Engines(answer=[Say(1000, HELLO), End()]), speed=1.0)
    d.client("response.create")
    d.run(0.6)
    assert d.session._coordinator.current is None
    d.engines.answer = [Say(500, "Second.", after=1.0), End()]
    d.client("response.create")
    d.client("response.cancel")
    d.settle()
    assert sum(left.send.samples for left in d) == 24_000
    assert d.texts() == [("assistant", HELLO)]
    assert not d.commands(c.Fence)


def test_late_chunks_of_a_cancelled_response_are_dropped_and_counted() -> None:
    d = Driver(auto=False)
    d.client("response.create")
    d.client("response.cancel")
    mark = len(d.left)
    d.chunk(d.start().response_id, Say(100, "late"))
    d.chunk(d.start().response_id, End())
    assert d.since(mark) == []
    assert len(d.measured("dropped_by_epoch")) == 2


def test_a_chunk_of_another_epoch_is_dropped() -> None:
    d = Driver(auto=False)
    d.client("response.create")
    mark = len(d.left)
    d.feed(i.ResponseText(d.start().response_id, d.start().epoch + 1, "stray"))
    d.feed(i.ResponseEnded(response_id=d.start().response_id, epoch=d.start().epoch - 1))
    assert d.since(mark) == []


def test_cancel_of_an_answer_that_has_begun_purges_the_tail_of_the_one_before_and_remembers_that() -> None:
    d = Driver(engines=Engines(answer=[Say(400, "One two three four"), End()]), speed=0)
    for answer in ([Say(400, "One two three four"), End()], [Say(3000, HELLO), End()]):
        d.engines.answer = answer
        d.client("response.create")
        d.run(0)
    first, second = d.starts
    assert [send.response_id for send, _ in d.outbox if send.samples][-1] == second
    d.set_speed(0.5)
    d.run(0.3)
    d.client("response.cancel")
    d.settle()
    delivered = sum(left.send.samples for left in d if left.send.response_id == first)
    assert 0 < delivered < 9600
    words = d.texts()[0][1].split()
    assert abs(len(words) - 4 * delivered / 9600) <= 1
    assert len(words) < 4
    assert d.session.state(d.now) == "idle"


def test_output_audio_buffer_clear_stops_what_is_heard() -> None:
    d = started()
    d.run(1)
    assert d.client("output_audio_buffer.clear")[0]["type"] == "output_audio_buffer.cleared"
    assert d.done()["status"] == "cancelled"
    assert d.texts()[0][1] != HELLO
    assert d.client("output_audio_buffer.clear") == []


# ---- written answers ------------------------------------------------------------------------------------------------


def test_a_written_answer() -> None:
    d = started(answer=[Write("Half past"), Write(" ten."), End(tokens=(12, 5))], session=TEXT)
    d.settle()
    answer = [type_ for type_ in d.types[d.types.index("response.created") :] if type_ != "rate_limits.updated"]
    assert answer == [
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]
    assert d.last("response.output_text.done")["text"] == "Half past ten."
    assert not d.start().audio
    usage = d.done()["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (12, 5, 17)


def test_a_spoken_answer_counts_audio_tokens() -> None:
    d = started(answer=[Say(1000, HELLO), End(tokens=(10, 9))])
    d.settle()
    assert d.done()["usage"]["output_token_details"] == {"text_tokens": 9, "audio_tokens": 20}


def test_one_response_may_be_written_in_a_session_that_speaks() -> None:
    d = Driver(engines=Engines(answer=[Write("Yes."), End()]))
    d.client("response.create", response=TEXT)
    d.settle()
    assert d.done()["output_modalities"] == ["text"]
    assert "response.output_audio.delta" not in d.types


def test_speech_that_strays_into_a_written_answer_is_dropped() -> None:
    d = started(answer=[Write("Yes."), Say(100, "stray"), End()], session=TEXT)
    d.settle()
    assert d.done()["output"][0]["content"] == [{"type": "output_text", "text": "Yes."}]


# ---- function calls -------------------------------------------------------------------------------------------------

TOOL = {"type": "function", "name": "look_up", "description": "Look it up.", "parameters": {"type": "object", "properties": {}}}


def test_a_function_call_round_trip() -> None:
    d = Driver(session={"tools": [TOOL]})
    d.engines.answer = [Call("look_up", '{"q":'), Call("look_up", ' "time"}'), End("tool_calls")]
    d.turn()
    d.settle()
    call = [type_ for type_ in d.types[d.types.index("response.created") :] if type_ != "rate_limits.updated"]
    assert call == [
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]
    done = d.last("response.function_call_arguments.done")
    assert (done["name"], done["arguments"], done["call_id"]) == ("look_up", '{"q": "time"}', "call_1")
    assert d.done()["status"] == "completed"
    output = {"type": "function_call_output", "call_id": "call_1", "output": "half past ten"}
    d.client("conversation.item.create", item=output)
    d.engines.answer = [Say(500, "Half past ten."), End()]
    d.client("response.create")
    assert [(message.role, message.text, message.call_id) for message in d.start().messages] == [
        ("user", "what is the time", None),
        ("assistant", "", None),
        ("tool", "half past ten", "call_1"),
    ]
    assert d.start().messages[1].tool_calls == (("call_1", "look_up", '{"q": "time"}'),)
    assert d.start().tools[0]["name"] == "look_up"


def test_speech_and_two_parallel_calls_in_one_answer() -> None:
    answer = [
        Say(2000, "Let me look."),
        Call("a", "{}", "call_a", 0),
        Call("b", "{}", "call_b", 1),
        End("tool_calls"),
    ]
    d = started(answer=answer)
    d.run(0.1)
    assert d.types.count("response.function_call_arguments.done") == 2, "a call does not wait for speech"
    d.settle()
    assert [item["type"] for item in d.done()["output"]] == ["message", "function_call", "function_call"]
    d.grammar.finish()


def test_the_output_of_a_call_may_come_and_be_answered_while_the_assistant_still_speaks() -> None:
    d = started(answer=[Say(2000, "Let me look."), Call("a", "{}"), End("tool_calls")])
    d.run(0.2)
    d.engines.answer = [Say(500, "It is ten."), End()]
    d.client("conversation.item.create", item={"type": "function_call_output", "call_id": "call_1", "output": "10"})
    d.client("response.create")
    d.settle()
    assert "error" not in d.types
    assert [event["response"]["status"] for event in d.of("response.done")] == ["completed", "completed"]
    assert any(message.role == "tool" for message in d.start().messages)


def test_a_call_that_is_interrupted_is_incomplete() -> None:
    d = started(answer=[Call("look_up", '{"q":')])
    d.run(0)
    d.client("response.cancel")
    assert d.done()["output"][0]["status"] == "incomplete"
    assert d.last("response.function_call_arguments.done")["arguments"] == '{"q":'


# ---- how responses end ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reason", "detail"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_an_answer_that_was_cut_off_is_incomplete(reason: str, detail: str) -> None:
    d = started(answer=[Say(200, "Half"), End(reason)])
    d.settle()
    assert d.done()["status"] == "incomplete"
    assert d.done()["status_details"]["reason"] == detail
    assert d.done()["output"][0]["status"] == "incomplete"


def test_an_engine_that_fails_in_the_middle_fails_the_response_and_not_the_session() -> None:
    d = started(answer=[Say(400, "Half"), End(code="engine_failed")])
    d.settle()
    assert d.done()["status"] == "failed"
    assert d.done()["status_details"]["error"]["code"] == "engine_failed"
    assert d.done()["output"][0]["content"][0]["transcript"] == "Half"
    assert "error" not in d.types
    d.engines.answer = [Say(400, "Whole"), End()]
    d.client("response.create")
    d.settle()
    assert d.done()["status"] == "completed"


def test_an_engine_that_fails_at_once() -> None:
    d = started(answer=[End(code="overloaded")])
    d.settle()
    assert d.done()["status"] == "failed"
    assert d.done()["output"] == []


def test_an_answer_of_nothing_is_complete() -> None:
    d = started(answer=[End()])
    d.settle()
    assert d.done()["status"] == "completed"
    assert d.done()["output"] == []


def test_a_pipeline_that_goes_on_after_its_end_is_not_heard() -> None:
    d = Driver(auto=False)
    d.client("response.create")
    for step in (Say(1000, "One."), End(), Say(1000, " Two."), Call("f", "{}"), End()):
        d.chunk(d.start().response_id, step)
    d.settle()
    assert [item["type"] for item in d.done()["output"]] == ["message"]
    assert d.texts() == [("assistant", "One.")]


# ---- formats --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["audio/pcmu", "audio/pcma"])
def test_g711_out_loses_nothing_at_the_end(kind: str) -> None:
    d = started(session={"audio": {"output": {"format": {"type": kind}}}}, answer=[Say(333, "One"), Say(500, " two."), End()])
    d.settle()
    data = b"".join(base64.b64decode(event["delta"]) for event in d.of("response.output_audio.delta"))
    assert len(data) == 8 * 833
    decode = g711.decode_mu_law if kind == "audio/pcmu" else g711.decode_a_law
    assert len(decode(data)) == 2 * len(data)
    assert d.done()["audio"]["output"]["format"] == {"type": kind}


def test_pcm_out_is_what_the_engine_made() -> None:
    d = started(answer=[Say(333, "One"), Say(500, " two."), End()])
    d.settle()
    data = b"".join(base64.b64decode(event["delta"]) for event in d.of("response.output_audio.delta"))
    assert data == sound(833)


def test_half_a_sample_from_an_engine_does_no_harm() -> None:
    d = Driver(auto=False)
    d.client("response.create")
    response_id = d.start().response_id
    d.feed(i.ResponseAudio(response_id=response_id, epoch=0, pcm=b"\x01\x02\x03", transcript="x"))
    d.chunk(response_id, End())
    d.settle()
    assert d.done()["status"] == "completed"
