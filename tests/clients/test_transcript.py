"""Lines of a conversation from events."""

from antiphon.clients.interface import ServerEvent
from antiphon.clients.transcript import Transcript


def feed(transcript: Transcript, *events: dict) -> None:
    for event in events:
        transcript.take(ServerEvent(0.0, event["type"], event))


def test_the_unheard_end_of_a_cut_answer_is_known():
    transcript = Transcript()
    feed(
        transcript,
        {"type": "conversation.item.input_audio_transcription.completed", "item_id": "u", "transcript": "Tell me a story."},
        {"type": "response.output_audio_transcript.delta", "item_id": "a", "response_id": "r", "delta": "Once upon a time,"},
        {"type": "response.output_audio_transcript.delta", "item_id": "a", "response_id": "r", "delta": " there was a fox."},
        {"type": "conversation.item.truncated", "item_id": "a", "content_index": 0, "audio_end_ms": 700},
        {
            "type": "conversation.item.retrieved",
            "item": {"id": "a", "role": "assistant", "content": [{"type": "output_audio", "transcript": "Once upon"}]},
        },
    )
    caller, answer = transcript.lines.values()
    assert (caller.speaker, caller.said, caller.unheard) == ("caller", "Tell me a story.", "")
    assert (answer.heard, answer.unheard) == ("Once upon", " a time, there was a fox.")


def test_partial_transcripts_grow_and_the_final_one_replaces_them():
    transcript = Transcript()
    kind = "conversation.item.input_audio_transcription"
    feed(
        transcript,
        {"type": f"{kind}.delta", "item_id": "u", "delta": "What is"},
        {"type": f"{kind}.delta", "item_id": "u", "delta": " the"},
    )
    assert transcript.lines["u"].said == "What is the"
    feed(transcript, {"type": f"{kind}.completed", "item_id": "u", "transcript": "What is the time?"})
    assert transcript.lines["u"].said == "What is the time?"


def test_the_end_of_a_response_completes_its_line():
    transcript = Transcript()
    feed(
        transcript,
        {"type": "response.output_text.delta", "item_id": "a", "response_id": "r", "delta": "Yes."},
        {"type": "response.done", "response": {"id": "r", "status": "completed"}},
    )
    assert (transcript.lines["a"].complete, transcript.lines["a"].status) == (True, "completed")
