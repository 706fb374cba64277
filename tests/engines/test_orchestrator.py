"""Whole answers: stages that overlap, text that comes with its sound, aborts that free every slot."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import pytest
from antiphon.engines.ar.echo import EchoChat, EchoChatOptions
from antiphon.engines.errors import EngineBusyError, EngineError
from antiphon.engines.feed import BYTES_PER_SECOND, AudioFeed
from antiphon.engines.interface import Role
from antiphon.engines.messages import (
    AudioChunk,
    EngineChunk,
    Finished,
    ResponseBody,
    SpeakBody,
    StageMark,
    TextChunk,
    ToolCallChunk,
    TranscribeBody,
    Transcript,
    TurnEndProbability,
    Usage,
    Word,
)
from antiphon.engines.orchestrator import Orchestrator
from antiphon.engines.pipeline import Pipeline
from antiphon.engines.pool import EnginePool
from antiphon.engines.response import LEAD_SECONDS
from antiphon.engines.speech.energy import EnergyOptions, EnergyVad
from antiphon.engines.speech.tone import ToneOptions, ToneSpeech
from hypothesis import given, settings
from hypothesis import strategies as st

from .fakes import FakeEngine, ask, chat, failing, speech

LONG = "This is the first of many. " + "Here comes another sentence, which is not short at all. " * 12


async def house(**engines: Any) -> Orchestrator:
    """A pool with one engine for each role given, and a pipeline `p` of them."""
    pool = EnginePool()
    for role, engine in engines.items():
        pool.add(role, engine)
    await pool.open()
    return Orchestrator(pool, [Pipeline.voice("p", **{"chat": "chat", **{role: role for role in engines}})])


async def read(orchestrator: Orchestrator, text: str = "hi", **keywords: Any) -> list[EngineChunk]:
    stream = orchestrator.respond("p", ResponseBody(chat=ask(text), **keywords), request_id="r")
    try:
        return [chunk async for chunk in stream]
    finally:
        await stream.aclose()


def audio(chunks: list[EngineChunk]) -> list[AudioChunk]:
    return [chunk for chunk in chunks if isinstance(chunk, AudioChunk)]


async def test_a_spoken_answer() -> None:
    orchestrator = await house(chat=EchoChat(EchoChatOptions(tokens_per_second=0)), speech=ToneSpeech(ToneOptions()))
    chunks = await read(orchestrator, "**Hello** there my friend. It costs $3.50, Dr. Who!")
    sound = audio(chunks)
    assert "".join(chunk.transcript for chunk in sound) == "Hello there my friend. It costs $3.50, Dr. Who!"
    for chunk in sound:
        assert "".join(word.text for word in chunk.words) == chunk.transcript
        assert len(chunk.pcm) % 2 == 0
    assert not any(isinstance(chunk, TextChunk) for chunk in chunks)
    assert chunks[-1] == Finished(usage=Usage(input_tokens=9, output_tokens=9))
    assert orchestrator.pool.running() == Counter()


async def test_slices_grow_while_the_reader_is_supplied() -> None:
    orchestrator = await house(chat=chat("One two three four."), speech=speech(20))
    sizes = [len(chunk.pcm) * 1000 // BYTES_PER_SECOND for chunk in audio(await read(orchestrator))]
    assert sizes[:4] == [40, 80, 160, 320]
    assert sum(sizes) == 2000


async def test_speech_begins_while_chat_goes_on() -> None:
    orchestrator = await house(chat=chat(LONG, pause=0.005), speech=speech())
    marks = {(mark.stage, mark.what): mark.at for mark in await read(orchestrator) if isinstance(mark, StageMark)}
    assert marks["chat", "start"] <= marks["chat", "first"] < marks["speech", "start"] <= marks["speech", "first"]
    assert marks["speech", "first"] < marks["chat", "end"] <= marks["speech", "end"]


async def test_a_written_answer() -> None:
    orchestrator = await house(chat=chat("**one** two"))
    chunks = await read(orchestrator, audio=False)
    assert [chunk for chunk in chunks if not isinstance(chunk, StageMark)] == [TextChunk("**one**"), TextChunk(" two"), Finished()]


async def test_function_calls_pass_through_beside_speech() -> None:
    call = ToolCallChunk(index=0, call_id="c", name="f", arguments="{}")
    orchestrator = await house(
        chat=FakeEngine(Role.CHAT, [TextChunk("Let me look."), call, Finished(reason="tool_calls")]), speech=speech()
    )
    chunks = await read(orchestrator)
    assert call in chunks
    assert "".join(chunk.transcript for chunk in audio(chunks)) == "Let me look."
    assert chunks[-1] == Finished(reason="tool_calls")


async def test_text_that_cannot_be_spoken_is_not_lost() -> None:
    orchestrator = await house(chat=FakeEngine(Role.CHAT, [TextChunk("That is very nice. "), TextChunk("🙂"), Finished()]), speech=speech())
    chunks = audio(await read(orchestrator))
    assert "".join(chunk.transcript for chunk in chunks) == "That is very nice. 🙂"


async def test_an_engine_that_says_the_text_in_other_words_gets_the_written_ones() -> None:
    spoken = AudioChunk(
        pcm=bytes(48_000),
        transcript="It costs five dollars today.",
        words=tuple(
            Word(word, index * 100.0, index * 100.0 + 90) for index, word in enumerate(("It", "costs", "five", "dollars", "today."))
        ),
    )
    orchestrator = await house(
        chat=FakeEngine(Role.CHAT, [TextChunk("It costs $5 today."), Finished()]), speech=FakeEngine(Role.SPEECH, [spoken])
    )
    first = audio(await read(orchestrator))[0]
    assert first.words == (Word("It", 0, 90), Word(" costs", 100, 190), Word(" $5", 200, 390), Word(" today.", 400, 490))


async def test_a_slow_reader_does_not_hold_the_speech_slot() -> None:
    voice = speech(5, slots=1)
    orchestrator = await house(chat=chat(LONG), speech=voice)
    stream = orchestrator.respond("p", ResponseBody(chat=ask("x")), request_id="r")
    async for chunk in stream:
        if isinstance(chunk, AudioChunk):
            break
    deadline = time.monotonic() + 5.0
    while orchestrator.pool.running():  # both stages come to wait without a slot
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    said = sum(isinstance(sent.body, SpeakBody) for sent in voice.requests)
    assert LEAD_SECONDS / 0.5 <= said <= LEAD_SECONDS / 0.5 + 2
    rest = [chunk async for chunk in stream]
    assert isinstance(rest[-1], Finished)


@pytest.mark.parametrize("stage", ["chat", "speech"])
async def test_a_failing_stage_names_itself_and_ends_the_others(stage: str) -> None:
    good = {"chat": chat(LONG, pause=0.01), "speech": speech(100, pause=0.01)}
    orchestrator = await house(**{**good, stage: failing(Role(stage))})
    began = time.monotonic()
    with pytest.raises(EngineError) as caught:
        await read(orchestrator)
    assert caught.value.code == f"{stage}_failed"
    assert "broken" in str(caught.value)
    assert time.monotonic() - began < 1.0
    assert orchestrator.pool.running() == Counter()


async def test_a_fault_in_an_engine_ends_the_response_not_the_house() -> None:
    orchestrator = await house(chat=FakeEngine(Role.CHAT, [TextChunk("a"), ZeroDivisionError("oops")]))
    with pytest.raises(EngineError, match="oops") as caught:
        await read(orchestrator, audio=False)
    assert caught.value.code == "chat_failed"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


async def test_no_slot_in_time_is_busy() -> None:
    orchestrator = await house(chat=chat("x"))
    async with await orchestrator.pool.acquire("chat"):
        stream = orchestrator.respond("p", ResponseBody(chat=ask("x"), audio=False), request_id="r", deadline=time.monotonic() + 0.02)
        with pytest.raises(EngineError) as caught:
            [chunk async for chunk in stream]
    assert caught.value.code == "chat_busy"
    assert isinstance(caught.value.__cause__, EngineBusyError)


@given(after=st.integers(0, 40), pause=st.sampled_from([0.0, 0.001]), unwind=st.sampled_from([0.0, 0.01]))
@settings(max_examples=30, deadline=None)
def test_closing_at_any_point_frees_every_slot(after: int, pause: float, unwind: float) -> None:
    async def scene() -> None:
        engines = {"chat": chat(LONG, pause=pause, unwind=unwind), "speech": speech(6, pause=pause, unwind=unwind)}
        orchestrator = await house(**engines)
        stream = orchestrator.respond("p", ResponseBody(chat=ask("x")), request_id="r")
        for _ in range(after):
            if await anext(stream, None) is None:
                break
        began = time.monotonic()
        await stream.aclose()
        assert time.monotonic() - began < 1.0
        assert orchestrator.pool.running() == Counter()
        assert all(engine.running == 0 and engine.started == engine.ended for engine in engines.values())
        assert await anext(stream, None) is None
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scene())


async def test_abort_is_heard_by_a_reader_that_waits_and_nothing_comes_after_it() -> None:
    orchestrator = await house(chat=chat(LONG, pause=0.01), speech=speech(50, pause=0.01))
    stream = orchestrator.respond("p", ResponseBody(chat=ask("x")), request_id="r")
    got: list[EngineChunk] = []

    async def reader() -> None:
        async for chunk in stream:
            got.append(chunk)

    task = asyncio.create_task(reader())
    await asyncio.sleep(0.15)
    stream.abort()
    seen = len(got)
    await asyncio.wait_for(task, 1.0)
    assert len(got) == seen > 0
    await stream.aclose()
    assert orchestrator.pool.running() == Counter()


async def test_listening_and_single_stages() -> None:
    orchestrator = await house(
        chat=chat("x"),
        vad=EnergyVad(EnergyOptions()),
        asr=FakeEngine(Role.ASR, [Transcript(text="he", final=False), Transcript(text="hello")]),
        turn_end=FakeEngine(Role.TURN_END, [TurnEndProbability(0.75)]),
    )
    feed = AudioFeed()
    loud = (b"\x00\x40" * 768) * 2
    feed.put(loud + bytes(768 * 2) + b"\x00\x00" * 10)
    feed.close()
    scores = [chunk async for chunk in orchestrator.listen("p", feed, session_id="s")]
    assert [round(score) for chunk in scores for score in chunk.probabilities] == [1, 1, 0]
    assert scores[0].start_sample == 0
    assert (await orchestrator.transcribe("p", TranscribeBody(pcm=b""))).text == "hello"
    assert await orchestrator.judge_turn_end("p", b"") == 0.75


async def test_single_stages_have_deadlines() -> None:
    orchestrator = await house(chat=chat("x"), asr=FakeEngine(Role.ASR, [Transcript(text="late")], pause=5.0))
    with pytest.raises(EngineError, match="before the deadline") as caught:
        await orchestrator.transcribe("p", TranscribeBody(pcm=b""), deadline=time.monotonic() + 0.05)
    assert caught.value.code == "asr_timeout"
    assert orchestrator.pool.running() == Counter()
    with pytest.raises(EngineError) as caught:
        await orchestrator.judge_turn_end("p", b"")
    assert caught.value.code == "no_turn_end"
    with pytest.raises(EngineError, match="there are: p"):
        orchestrator.respond("q", ResponseBody(chat=ask("x")), request_id="r")
