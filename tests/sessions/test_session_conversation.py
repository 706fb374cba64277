"""The conversation's four client events: create, retrieve, delete, truncate."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from antiphon.sessions import commands as c
from antiphon.sessions.policy import SessionLimits
from antiphon.tests.sessions.driver import HELLO, Driver, End, Engines, Say, sound

ADDED, DONE = "conversation.item.added", "conversation.item.done"


def text(words: str, role: str = "user", **more: Any) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": words}], **more}


def audio(ms: float) -> str:
    return base64.b64encode(sound(ms)).decode()


def spoken(ms: float = 3000, words: str = HELLO, **settings: Any) -> tuple[Driver, str]:
    """A conversation whose assistant has said something; and the item's id."""
    d = Driver(engines=Engines(answer=[Say(ms, words), End()]), **settings)
    d.client("response.create")
    d.settle()
    return d, d.last("response.output_item.added")["item"]["id"]


def playing(**settings: Any) -> tuple[Driver, str]:
    """The assistant has been speaking for a second."""
    d = Driver(engines=Engines(answer=[Say(3000, HELLO), End()]), **settings)
    d.client("response.create")
    d.run(1.0)
    return d, d.last("response.output_item.added")["item"]["id"]


# ---- create ---------------------------------------------------------------------------------------------------------


def test_create_appends_and_is_answered_by_added_and_done() -> None:
    d = Driver()
    events = d.client("conversation.item.create", item=text("hello", id="msg_1"))
    assert [event["type"] for event in events] == [ADDED, DONE]
    assert all(event["previous_item_id"] is None for event in events)
    assert events[0]["item"]["content"] == [{"type": "input_text", "text": "hello"}]


def test_create_puts_the_item_where_it_is_told_to() -> None:
    d = Driver()
    for item_id, after in [("b", None), ("d", None), ("a", "root"), ("c", "b")]:
        fields = {} if after is None else {"previous_item_id": after}
        d.client("conversation.item.create", item=text(item_id, id=item_id), **fields)
    assert d.grammar.order == ["a", "b", "c", "d"]
    assert [words for _, words in d.texts()] == ["a", "b", "c", "d"]


def test_create_after_an_unknown_item_is_refused() -> None:
    error = Driver().refused("conversation.item.create", item=text("x"), previous_item_id="item_unknown")
    assert error["code"] == "invalid_value"
    assert error["param"] == "previous_item_id"


def test_create_with_an_id_that_is_taken_is_refused() -> None:
    d = Driver()
    d.client("conversation.item.create", item=text("x", id="msg_1"))
    assert d.refused("conversation.item.create", item=text("y", id="msg_1"))["code"] == "item_create_duplicate_item_id"


def test_create_with_the_id_of_the_turn_being_spoken_is_refused() -> None:
    d = Driver()
    d.say(640)
    item_id = d.last("input_audio_buffer.speech_started")["item_id"]
    assert d.refused("conversation.item.create", item=text("y", id=item_id))["code"] == "item_create_duplicate_item_id"
    d.hear(640, 0.0)
    d.settle()
    assert d.done()["status"] == "completed"


def test_create_makes_an_id_when_the_client_gives_none() -> None:
    d = Driver()
    assert d.client("conversation.item.create", item=text("x"))[0]["item"]["id"].startswith("item_")


def test_create_with_audio_is_transcribed_before_it_is_answered() -> None:
    d = Driver(session={"audio": {"input": {"transcription": {"model": "m"}}}}, engines=Engines(asr_delay=0.2))
    content = [{"type": "input_audio", "audio": audio(400)}]
    d.client("conversation.item.create", item={"type": "message", "role": "user", "id": "msg_1", "content": content})
    d.client("response.create")
    assert not d.commands(c.StartResponse)
    d.settle()
    assert d.last("conversation.item.input_audio_transcription.completed")["item_id"] == "msg_1"
    assert d.start().messages[-1].text == "what is the time"


def test_create_with_audio_and_transcript_is_not_transcribed() -> None:
    d = Driver()
    content = [{"type": "input_audio", "audio": audio(400), "transcript": "given"}]
    d.client("conversation.item.create", item={"type": "message", "role": "user", "content": content})
    d.client("response.create")
    assert d.start().messages[-1].text == "given"
    assert not d.commands(c.Transcribe)


def test_create_with_two_audio_parts_is_refused() -> None:
    content = [{"type": "input_audio", "audio": audio(200)}] * 2
    error = Driver().refused("conversation.item.create", item={"type": "message", "role": "user", "content": content})
    assert error["param"] == "item.content[1].type"


def test_create_with_a_picture_is_refused() -> None:
    content = [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]
    error = Driver().refused("conversation.item.create", item={"type": "message", "role": "user", "content": content})
    assert error["code"] == "unsupported_content_type"


def test_create_of_what_could_not_be_sent_back_is_refused() -> None:
    """Stock clients take frames below 1 MiB."""
    d = Driver()
    assert d.refused("conversation.item.create", item=text("x" * 1_000_000))["code"] == "invalid_value"
    assert d.refused("conversation.item.create", item=text("\x01" * 200_000))["param"] == "item"
    d.client("conversation.item.create", item=text("x" * 900_000))
    assert d.types[-1] == DONE


def test_the_oldest_items_go_when_there_are_too_many_and_the_client_is_told() -> None:
    d = Driver(limits=SessionLimits(max_items=3))
    for n in range(5):
        d.client("conversation.item.create", item=text(str(n), id=f"msg_{n}"))
    assert d.grammar.order == ["msg_2", "msg_3", "msg_4"]
    assert [event["item_id"] for event in d.of("conversation.item.deleted")] == ["msg_0", "msg_1"]


def test_turns_of_a_caller_are_bounded_even_when_no_transcript_comes() -> None:
    d = Driver(limits=SessionLimits(max_items=3), engines=Engines(asr_delay=None))
    for _ in range(6):
        d.turn()
    assert len(d.session.conversation) == 3
    assert d.grammar.order == [item.id for item in d.session.conversation]


# ---- retrieve -------------------------------------------------------------------------------------------------------


def test_retrieve_brings_the_callers_item_with_its_audio() -> None:
    d = Driver(session={"audio": {"input": {"turn_detection": None}}})
    d.append(sound(500))
    d.client("input_audio_buffer.commit")
    d.settle()
    item_id = d.last("input_audio_buffer.committed")["item_id"]
    part = d.client("conversation.item.retrieve", item_id=item_id)[0]["item"]["content"][0]
    assert part["transcript"] == "what is the time"
    assert base64.b64decode(part["audio"]) == sound(500)


def test_retrieve_brings_the_assistants_audio_as_far_as_it_was_heard() -> None:
    d, item_id = spoken(3000)
    d.client("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=1000)
    part = d.client("conversation.item.retrieve", item_id=item_id)[0]["item"]["content"][0]
    assert len(base64.b64decode(part["audio"])) == 48_000
    assert HELLO.startswith(part["transcript"])


def test_retrieve_leaves_audio_out_that_would_not_fit_into_a_frame() -> None:
    d, item_id = spoken(20_000)
    event = d.client("conversation.item.retrieve", item_id=item_id)[0]
    assert "audio" not in event["item"]["content"][0]
    d.client("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=2000)
    event = d.client("conversation.item.retrieve", item_id=item_id)[0]
    assert len(base64.b64decode(event["item"]["content"][0]["audio"])) == 96_000


def test_retrieve_of_an_item_whose_audio_was_forgotten_has_its_words() -> None:
    d, item_id = spoken(3000, limits=SessionLimits(item_audio_ms=4000))
    d.client("response.create")
    d.settle()
    part = d.client("conversation.item.retrieve", item_id=item_id)[0]["item"]["content"][0]
    assert part["transcript"] == HELLO
    assert "audio" not in part


def test_retrieve_works_while_the_item_is_being_spoken() -> None:
    d, item_id = playing()
    assert d.client("conversation.item.retrieve", item_id=item_id)[0]["item"]["status"] == "in_progress"


def test_retrieve_of_an_unknown_item_is_refused() -> None:
    assert Driver().refused("conversation.item.retrieve", item_id="item_unknown")["code"] == "item_retrieve_invalid_item_id"


# ---- delete ---------------------------------------------------------------------------------------------------------


def test_delete_takes_the_item_out() -> None:
    d = Driver()
    for n in range(3):
        d.client("conversation.item.create", item=text(str(n), id=f"msg_{n}"))
    assert [event["type"] for event in d.client("conversation.item.delete", item_id="msg_1")] == ["conversation.item.deleted"]
    assert [words for _, words in d.texts()] == ["0", "2"]
    d.client("conversation.item.create", item=text("3"))
    assert d.last(ADDED)["previous_item_id"] == "msg_2"


def test_delete_of_the_item_being_spoken_ends_its_response() -> None:
    d, item_id = playing()
    d.client("conversation.item.delete", item_id=item_id)
    assert d.done()["status_details"]["reason"] == "client_cancelled"
    assert d.types[-1] == "conversation.item.deleted"
    assert d.texts() == []
    d.settle()
    d.grammar.finish()


def test_delete_of_a_turn_whose_words_are_not_in_yet_answers_nothing_and_blocks_nothing() -> None:
    d = Driver(engines=Engines(asr_delay=0.5))
    d.turn(pause=512)
    d.client("conversation.item.delete", item_id=d.last("input_audio_buffer.committed")["item_id"])
    d.settle()
    assert not d.of("response.created")
    d.client("response.create")
    d.settle()
    assert d.done()["status"] == "completed"


def test_delete_of_an_unknown_item_is_refused() -> None:
    assert Driver().refused("conversation.item.delete", item_id="item_unknown")["code"] == "item_delete_invalid_item_id"


# ---- truncate -------------------------------------------------------------------------------------------------------


def truncate(d: Driver, item_id: str, ms: int, index: int = 0) -> list[dict[str, Any]]:
    return d.client("conversation.item.truncate", item_id=item_id, content_index=index, audio_end_ms=ms)


def test_truncate_in_the_middle_keeps_the_words_that_were_heard() -> None:
    d, item_id = spoken(4100)
    events = truncate(d, item_id, 2050)
    assert [(event["type"], event["audio_end_ms"]) for event in events] == [("conversation.item.truncated", 2050)]
    assert d.texts() == [("assistant", "Hello there my friend,")]


def test_truncate_at_0_leaves_nothing_and_the_model_is_shown_nothing() -> None:
    d, item_id = spoken()
    assert truncate(d, item_id, 0)[0]["audio_end_ms"] == 0
    assert d.texts() == [("assistant", "")]
    d.client("response.create")
    assert d.start().messages == ()


def test_truncate_beyond_the_end_is_clamped() -> None:
    d, item_id = spoken(3000)
    assert truncate(d, item_id, 3400)[0]["audio_end_ms"] == 3000
    assert d.texts() == [("assistant", HELLO)]


def test_truncate_while_the_item_plays_stops_it_and_ends_its_response() -> None:
    """All that openai-agents and pipecat send on an interruption."""
    d, item_id = playing()
    mark = len(d.left)
    truncate(d, item_id, 900)
    assert d.since(mark)[0] == "conversation.item.truncated"
    assert d.types[-1] == "response.done"
    assert d.done()["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
    assert d.commands(c.StopResponse)
    d.settle()
    assert d.types[-1] == "response.done"
    assert HELLO.startswith(d.texts()[0][1])
    assert d.texts()[0][1] != HELLO
    assert d.session.state(d.now) == "idle"


def test_truncate_in_the_tail_withholds_what_the_transport_has_not_delivered() -> None:
    d = Driver(engines=Engines(answer=[Say(400, HELLO), End()]), speed=0)
    d.client("response.create")
    assert d.of("response.done") == []
    d.set_speed(1.0)
    d.run(0.2)
    queued = sum(send.samples for send, _ in d.outbox)
    assert queued
    item_id = d.last("response.output_item.added")["item"]["id"]
    truncate(d, item_id, 100)
    assert sum(send.samples for send, _ in d.outbox) == 0
    d.settle()
    d.grammar.finish()


def test_truncate_of_an_answer_that_is_over_leaves_the_next_one_alone() -> None:
    """The next response is being made (after a function call, say) while the tail of the first is still heard."""
    d = Driver(engines=Engines(answer=[Say(1000, HELLO), End()]))
    d.client("response.create")
    d.run(0.6)
    item_id = d.last("response.output_item.added")["item"]["id"]
    assert d.types[-1] == "response.done"
    d.engines.answer = [Say(500, "Second.", after=1.0), End()]
    d.client("response.create")
    truncate(d, item_id, 550)
    assert d.commands(c.Fence)
    d.settle()
    assert [event["response"]["status"] for event in d.of("response.done")] == ["completed", "completed"]
    assert d.of("response.output_audio_transcript.done")[-1]["transcript"] == "Second."
    assert len([left for left in d if left.type == "response.output_audio.delta" and left.send.response_id == d.start().response_id]) > 3


def test_truncate_after_a_barge_in_refines_what_the_server_believed() -> None:
    """The client knows better what it played."""
    d = Driver(engines=Engines(answer=[Say(4100, HELLO), End()]))
    d.turn()
    d.hear(2500, 0.0)
    d.say(900, "the other one please")
    believed = next(words for role, words in d.texts() if role == "assistant")
    item_id = d.last("response.output_item.added")["item"]["id"]
    truncate(d, item_id, 600)
    assert len(next(words for role, words in d.texts() if role == "assistant")) < len(believed)
    assert len(d.commands(c.Fence)) == 1


def test_truncate_after_cancel() -> None:
    """livekit's order."""
    d, item_id = playing()
    d.client("response.cancel")
    assert truncate(d, item_id, 900)[0]["type"] == "conversation.item.truncated"
    d.settle()
    assert d.types.count("response.done") == 1


def test_truncate_of_what_is_not_the_assistants_speech_is_refused() -> None:
    d = Driver()
    d.client("conversation.item.create", item=text("hello", id="msg_1"))
    d.client("conversation.item.create", item=text("hello", "assistant", id="msg_2"))
    for item_id in ("msg_1", "msg_2"):
        error = d.refused("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=0)
        assert "Only model output audio messages can be truncated" in error["message"]


def test_truncate_of_an_unknown_item_or_part_is_refused() -> None:
    d, item_id = spoken()
    error = d.refused("conversation.item.truncate", item_id="item_unknown", content_index=0, audio_end_ms=0)
    assert error["code"] == "item_truncate_invalid_item_id"
    assert d.refused("conversation.item.truncate", item_id=item_id, content_index=1, audio_end_ms=0)["param"] == "content_index"
    assert d.refused("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=-1)["param"] == "audio_end_ms"


# ---- what the model is shown ----------------------------------------------------------------------------------------


def test_the_model_is_shown_instructions_and_items_in_order() -> None:
    d = Driver(session={"instructions": "Be brief."})
    d.client("conversation.item.create", item=text("b"))
    d.client("conversation.item.create", item=text("a", "system"), previous_item_id="root")
    d.client("conversation.item.create", item=text("c", "assistant"))
    d.client("response.create")
    shown = [(message.role, message.text) for message in d.start().messages]
    assert shown == [("system", "Be brief."), ("system", "a"), ("user", "b"), ("assistant", "c")]


@pytest.mark.parametrize("answered", [False, True])
def test_a_call_that_was_cut_short_is_shown_only_with_its_output(answered: bool) -> None:
    from antiphon.sessions.conversation import messages
    from antiphon.sessions.items import Item

    items = [Item("i1", "function_call", status="incomplete", call_id="call_1", name="f", arguments='{"a": ')]
    if answered:
        items.append(Item("i2", "function_call_output", call_id="call_1", output="12"))
    assert [message.role for message in messages(items, "")] == (["assistant", "tool"] if answered else [])
