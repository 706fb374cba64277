"""The session's stores and counters against plain models: ledger, timeline, input ring, token bucket, conversation."""

from __future__ import annotations

import math
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from antiphon.sessions.conversation import Conversation
from antiphon.sessions.input_audio import InputRing
from antiphon.sessions.items import HeardPart, Item, TextPart
from antiphon.sessions.playback import PlaybackLedger
from antiphon.sessions.rates import TokenBucket
from antiphon.sessions.timeline import SAMPLE_RATE, TimedWord, Timeline, spread
from antiphon.sessions.wire_audio import InputDecoder, OutputEncoder
from antiphon.tests.sessions.profile import bounded
from hypothesis import given

# ---- playback ledger ------------------------------------------------------------------------------------------------


def test_audio_is_heard_from_its_delivery_on_in_real_time() -> None:
    ledger = PlaybackLedger()
    ledger.release(24_000)
    assert ledger.heard_ms(5.0) == 0
    ledger.deliver(24_000, 10.0)
    assert ledger.heard_ms(10.25) == pytest.approx(250)
    assert ledger.playing(10.999)
    assert not ledger.playing(11.0)
    assert ledger.heard_ms(99.0) == 1000


def test_a_pause_in_the_delivery_is_an_underrun_unless_it_was_the_end() -> None:
    ledger = PlaybackLedger()
    for at in (0.0, 1.0, 2.0):
        ledger.release(2400)
        ledger.deliver(2400, at)
    assert ledger.underruns == 2
    ledger.release(2400)
    ledger.complete()
    ledger.deliver(2400, 9.0)
    assert ledger.underruns == 2


def test_what_was_stopped_is_not_heard_further() -> None:
    ledger = PlaybackLedger()
    ledger.release(24_000)
    ledger.deliver(24_000, 0.0)
    ledger.stop(0.5)
    assert ledger.heard_ms(9.0) == pytest.approx(500)
    assert not ledger.playing(0.5)
    assert ledger.undelivered == 0


def test_what_was_withheld_will_not_be_heard_and_the_rest_will() -> None:
    ledger = PlaybackLedger()
    ledger.release(24_000)
    ledger.deliver(12_000, 0.0)
    ledger.withhold()
    assert ledger.playing(0.49)
    assert not ledger.playing(0.5)
    assert ledger.heard_ms(9.0) == 500


def test_an_answer_is_heard_after_the_one_before() -> None:
    first, second = PlaybackLedger(), PlaybackLedger()
    first.release(24_000)
    first.deliver(24_000, 0.0)
    second.follow(first, 0.5)
    second.release(12_000)
    assert second.ahead(0.5) == pytest.approx(24_000)
    second.deliver(12_000, 0.5)
    assert second.heard_ms(0.9) == 0
    assert second.heard_ms(1.2) == pytest.approx(200)
    assert second.falls_to(0, 0.6) == pytest.approx(1.5)


def test_when_the_ledger_will_have_fallen() -> None:
    ledger = PlaybackLedger()
    ledger.release(24_000)
    assert ledger.falls_to(0, 0.0) is None
    ledger.deliver(24_000, 0.0)
    assert ledger.falls_to(12_000, 0.0) == pytest.approx(0.5)
    assert ledger.falls_to(12_000, 0.75) == pytest.approx(0.75)


STEP = st.tuples(
    st.sampled_from(["release", "deliver", "look", "complete", "stop", "withhold"]),
    st.integers(0, 6000),
    st.floats(0, 0.4),
    st.integers(0, 1),
)


@given(st.lists(STEP, max_size=40), st.booleans())
@bounded(200, 5000)
def test_heard_delivered_released_only_grow_and_stand_in_order(steps: list[tuple[str, int, float, int]], look_often: bool) -> None:
    ledgers = [PlaybackLedger(), PlaybackLedger()]
    now, before = 0.0, [(0, 0, 0.0), (0, 0, 0.0)]
    ledgers[1].follow(ledgers[0], now)
    for what, samples, wait, which in steps:
        now += wait
        ledger = ledgers[which]
        if look_often:
            ledger.heard(now - wait / 2)
        match what:
            case "release":
                ledger.release(samples)
            case "deliver":
                ledger.deliver(samples, now)
            case "stop":
                ledger.stop(now)
            case "look":
                ledger.heard(now)
            case _:
                getattr(ledger, what)()
        for n, ledger in enumerate(ledgers):
            seen = (ledger.released, ledger.delivered, ledger.heard(now))
            assert seen[2] <= seen[1] <= seen[0]
            assert all(new >= old for new, old in zip(seen, before[n], strict=True))
            assert ledger.ahead(now) >= 0
            assert ledger.undelivered >= 0
            due = ledger.falls_to(0, now)
            assert due is None or due >= now
            if due is not None:
                assert not ledger.playing(due + 1e-3)
            before[n] = seen


# ---- timeline -------------------------------------------------------------------------------------------------------


def test_a_word_counts_as_heard_once_half_of_it_has_sounded() -> None:
    timeline = Timeline()
    timeline.extend(SAMPLE_RATE, "One two.", (TimedWord("One", 0, 400), TimedWord(" two.", 500, 900)))
    assert [timeline.heard(ms) for ms in (0, 199, 200, 699, 700, 5000)] == ["", "", "One", "One", "One two.", "One two."]


def test_chunks_are_timed_from_where_they_begin() -> None:
    timeline = Timeline()
    timeline.extend(SAMPLE_RATE, "One", ())
    timeline.extend(SAMPLE_RATE, " two", (TimedWord(" two", 0, 1000),))
    assert timeline.duration_ms == 2000
    assert timeline.heard(1400) == "One"
    assert timeline.heard(1500) == "One two"


def test_words_that_do_not_make_up_the_transcript_are_not_trusted() -> None:
    timeline = Timeline()
    timeline.extend(SAMPLE_RATE, "One two", (TimedWord("Uno", 0, 10),))
    assert timeline.transcript == "One two"
    assert timeline.heard(400) == "One"


def test_nothing_is_heard_of_no_audio() -> None:
    timeline = Timeline()
    timeline.extend(0, "One", ())
    assert timeline.heard(0) == ""
    assert timeline.transcript == "One"


CHUNKS = st.lists(
    st.tuples(
        st.integers(0, 30_000),
        st.lists(st.tuples(st.sampled_from(["One", " two", " three.", "\n", "  "]), st.floats(0, 900), st.floats(0, 900)), max_size=5),
        st.booleans(),
    ),
    max_size=6,
)


@given(CHUNKS, st.lists(st.floats(-10, 9000), min_size=2, max_size=2))
@bounded(200, 5000)
def test_what_was_heard_is_a_growing_prefix(chunks: list[tuple[int, list[tuple[str, float, float]], bool]], at: list[float]) -> None:
    timeline = Timeline()
    for samples, words, timed in chunks:
        text = "".join(word for word, _, _ in words)
        timeline.extend(samples, text, tuple(TimedWord(*word) for word in words) if timed else ())
    early, late = sorted(at)
    assert timeline.transcript.startswith(timeline.heard(late))
    assert timeline.heard(late).startswith(timeline.heard(early))
    assert timeline.heard(math.inf) == timeline.transcript


@given(st.text(max_size=60), st.floats(0, 5000))
@bounded(150, 3000)
def test_spread_loses_no_character_and_fills_the_time(text: str, duration: float) -> None:
    words = spread(text, duration)
    assert "".join(word.text for word in words) == text
    assert all(word.text for word in words)
    if words:
        assert words[0].start_ms == 0
        assert words[-1].end_ms == pytest.approx(duration)
        assert all(a.end_ms == b.start_ms for a, b in pairwise(words))


# ---- input ring -----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from(["append", "trim", "slice"]), st.integers(0, 400), st.integers(0, 400)), max_size=40))
@bounded(200, 5000)
def test_the_ring_is_a_window_on_everything_that_was_heard(steps: list[tuple[str, int, int]]) -> None:
    bound = 500
    ring, everything, begin = InputRing(bound), b"", 0
    for what, a, b in steps:
        if what == "append":
            pcm = b"".join(n.to_bytes(2, "little") for n in range(len(everything) // 2, len(everything) // 2 + a))
            ring.append(pcm)
            everything += pcm
            begin = max(begin, len(everything) // 2 - bound)
        elif what == "trim":
            ring.trim(a)
            begin = max(begin, min(a, len(everything) // 2))
        else:
            assert ring.slice(a, b) == everything[max(a, begin) * 2 : max(b, 0) * 2]
        assert (ring.begin, ring.end) == (begin, len(everything) // 2)
        assert ring.slice(0, ring.end) == everything[begin * 2 :]
        assert ring.end - ring.begin <= bound


# ---- token bucket ---------------------------------------------------------------------------------------------------


def test_the_bucket_gives_its_capacity_at_once_and_refills_evenly() -> None:
    bucket = TokenBucket(4, 60.0)
    assert [bucket.take(0.0) for _ in range(5)] == [True] * 4 + [False]
    assert bucket.refill_s(0.0) == 60.0
    assert not bucket.take(14.9)
    assert bucket.take(15.1)
    assert bucket.remaining(1000.0) == 4
    assert bucket.refill_s(1000.0) == 0.0


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0.1, 3)), max_size=40))
@bounded(100, 2000)
def test_the_bucket_never_gives_more_than_its_rate_allows(steps: list[tuple[float, float]]) -> None:
    bucket, now, given_out = TokenBucket(5, 10.0), 0.0, 0.0
    for wait, amount in steps:
        now += wait
        if bucket.take(now, amount):
            given_out += amount
        assert given_out <= 5 + now * 0.5 + 1e-6
        assert 0 <= bucket.remaining(now) <= 5


# ---- conversation ---------------------------------------------------------------------------------------------------


def test_old_audio_goes_before_old_words() -> None:
    conversation = Conversation("conv_1", max_items=10, max_audio=250)
    for n in range(3):
        conversation.insert(Item(f"i{n}", role="user", content=[HeardPart(f"words {n}", bytes(100))]))
    assert conversation.overflow() == []
    assert [item.audio_bytes for item in conversation] == [0, 100, 100]
    assert [item.text for item in conversation] == ["words 0", "words 1", "words 2"]


def test_an_item_that_is_needed_stays() -> None:
    conversation = Conversation("conv_1", max_items=2, max_audio=0)
    for n in range(4):
        conversation.insert(Item(f"i{n}", role="user"))
    assert [item.id for item in conversation.overflow(["i0"])] == ["i1", "i2"]
    assert [item.id for item in conversation] == ["i0", "i3"]


# ---- wire audio -----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 700), max_size=12), st.sampled_from(["audio/pcmu", "audio/pcma"]))
@bounded(40, 500)
def test_g711_out_has_a_third_of_the_samples_however_it_is_cut(cuts: list[int], kind: str) -> None:
    encoder = OutputEncoder(kind)
    whole = b"".join(encoder.encode(bytes(2 * cut)) for cut in cuts) + encoder.flush()
    assert len(whole) == -(-sum(cuts) // 3)


@given(st.binary(max_size=200), st.lists(st.integers(0, 50), max_size=10))
@bounded(60, 1000)
def test_pcm_in_is_put_together_again_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    decoder, out, position = InputDecoder("audio/pcm"), b"", 0
    for cut in [*cuts, len(data)]:
        out += decoder.decode(data[position : position + cut])
        position += cut
    whole = data[:position]
    assert out == whole[: len(whole) & ~1]


def test_a_conversation_of_much_text_lets_its_oldest_items_go() -> None:
    conversation = Conversation("conv_1", max_items=100, max_audio=0, max_text=25)
    for number in range(4):
        conversation.insert(Item(f"item_{number}", role="user", content=[TextPart("ten chars.")]))
    removed = conversation.overflow(keep=["item_0"])
    assert [item.id for item in removed] == ["item_1", "item_2"]
    assert [item.id for item in conversation] == ["item_0", "item_3"]
