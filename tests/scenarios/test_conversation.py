"""A scripted call against the fake server: its timing, and what is kept of it."""

import numpy as np
import pytest
from antiphon.clients.realtime import connect
from antiphon.codecs import wav
from antiphon.codecs.pcm import SAMPLE_RATE
from antiphon.scenarios import figures
from antiphon.scenarios.callers import Callers
from antiphon.scenarios.conversation import SESSION, Conversation
from antiphon.scenarios.script import Backchannel, Interrupt, Noise, Say, utterances
from antiphon.scenarios.sentences import sentences
from antiphon.scenarios.voice_turns import script
from antiphon.tests.clients.fake_server import fake_server, voice

SCRIPT = [
    Say(text="Tell me a story.", caller=0),
    Backchannel(text="Mm.", caller=0, after_ms=300),
    Interrupt(text="Stop it.", caller=1, after_ms=900),
    Noise(kind="click", after_ms=200),
]


@pytest.fixture
def callers(tmp_path):
    found = Callers(tmp_path / "callers")
    (tmp_path / "callers").mkdir()
    for caller, text in utterances([*SCRIPT, Say(text="Spare.", caller=0)]):
        wav.write(found.path(caller, text), bytes(4_800) + voice(0.12 if text == "Mm." else 0.6) + bytes(2_400))
    return found


async def test_a_script_is_played_as_written(callers):
    async with fake_server(answer_s=4.0, confirm_s=0.25, transcripts=["Tell me a story.", "Stop it."]) as (url, _):
        log = await Conversation(await connect(url), callers).play(SCRIPT, SESSION)
    summary = figures.summarise(log)
    assert [item.kind for item in log.happenings] == ["say", "backchannel", "interrupt", "click"]
    assert all(item.over for item in log.happenings[1:])
    assert (summary.turns, summary.answered, summary.interruptions) == (2, 2, 1)
    assert (summary.missed, summary.false_interruptions, summary.stale_bytes) == (0, 0, 0)
    assert summary.wer == 0
    assert 0.2 < summary.ttfp[0] / 1000 < 0.6
    assert 0.2 < summary.withheld[0] / 1000 < 0.6
    (row,) = figures.interruptions(log)
    assert 2000 < row.heard_ms < 3200
    assert row.kept.startswith("one two")
    caller = np.frombuffer(log.caller_audio, "<i2")
    first = round((log.happenings[0].onset - log.started_at) * SAMPLE_RATE)
    assert not np.abs(caller[first - 1000 : first - 10]).max()
    assert np.abs(caller[first : first + 480]).max() > 5_000


async def test_a_spare_question_is_asked_when_the_answer_was_too_short(callers):
    async with fake_server(answer_s=0.5) as (url, _):
        conversation = Conversation(await connect(url), callers, spare=[Say(text="Spare.", caller=0)])
        log = await conversation.play([Say(text="Tell me a story.", caller=0), Interrupt(text="Stop it.", caller=1, after_ms=900)], SESSION)
    assert [item.text for item in log.happenings] == ["Tell me a story.", "Spare.", "Stop it."]
    assert log.happenings[-1].over is None


def test_the_acceptance_script_is_large_enough_and_its_sentences_are_there():
    actions = script()
    kinds = [type(action) for action in actions]
    assert kinds.count(Say) + kinds.count(Interrupt) >= 20
    assert kinds.count(Interrupt) >= 8
    assert kinds.count(Backchannel) >= 4
    assert {action.kind for action in actions if isinstance(action, Noise)} == {"click", "cough", "steady"}
    assert sum(isinstance(action, Say) and action.snr_db == 10 for action in actions) >= 3
    assert len({action.caller for action in actions if isinstance(action, Say)}) >= 4
    with pytest.raises(KeyError):
        sentences("nothing")
