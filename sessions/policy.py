"""How a session decides, in numbers: the operator's configuration of turn taking, playback and limits."""

from __future__ import annotations

from dataclasses import dataclass

BACKCHANNELS = (
    "mm-hm mm-hmm mhm mmhm mm hmm hm uh-huh uhuh aha ah oh okay ok yeah yep yes right sure i see got it go on gotcha "
    "really wow cool nice great good true alright all exactly of course"
)
OPENERS = (
    "stop wait no not hold hang pause quiet enough cancel excuse hey actually sorry but what what's how why who when where "
    "which can could would will should do don't is are please tell let let's give never antiphon listen skip"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTakingPolicy:
    """When a caller's speech opens a turn, ends it, and interrupts. Times in ms."""

    min_speech_ms: int = 96
    """Speech shorter than this never opens a turn: a click, a knock."""
    confirm_ms: int = 768
    """Speech over the assistant that lasts this long is an interruption, unless its words are a backchannel; 0 stops the assistant
    at the first edge. Hums last up to 700 ms and no small ASR model knows them, so shorter speech is judged by its opening."""
    opener_ms: int = 416
    """Speech over the assistant that opens with one of `openers` is an interruption after this."""
    overlap_words: bool = True
    """Ask the ASR engine what was said over the assistant, to tell a backchannel from an interruption."""
    overlap_words_wait_ms: int = 200
    """How much longer than the confirm window the words may take."""
    backchannel_ms: int = 1400
    """Speech over the assistant that lasts longer than this interrupts whatever its words."""
    overlap_end_ms: int = 256
    """Silence that ends speech over the assistant."""
    thinking_confirm_ms: int = 160
    """Speech needed to join the turn while the answer is being made and nothing of it has been heard."""
    resume_ms: int = 1200
    """Speech that begins within this of the caller's own last word goes on with the turn: it needs only `thinking_confirm_ms`."""
    backchannels: str = BACKCHANNELS
    openers: str = OPENERS
    """Words that open an interruption: it is then one before the confirm window is over, even if it ends before."""
    opener_certainty: float = 0.2
    """… but not when the ASR engine gives its tokens less than this probability (geometric mean): hums come back as words, at 0.1 and
    less."""
    hysteresis: float = 0.15
    """Speech goes on while the VAD's score stays above its threshold less this."""
    ask_turn_end_ms: int = 160
    """Silence after which the turn-end engine is asked (semantic_vad)."""
    early_transcription_ms: int = 96
    """Silence after which the final transcription is begun, in the hope that the turn is over."""
    partial_interval_ms: int = 640
    """How often a growing utterance is decoded again for transcription deltas."""
    max_turn_ms: int = 120_000
    """A turn that goes on longer is ended."""
    skip_silent_turns: bool = True
    """A turn in which no word was recognised is not answered."""
    idle_prompts: int = 2
    """How many times in a row an idle timeout may make the assistant speak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """Bounds of one session. Every queue and store of the session core is bounded by one of these."""

    lead_ms: int = 500
    """How far ahead of real time audio may be sent."""
    slice_ms: int = 160
    """The longest audio in one delta."""
    first_slice_ms: int = 40
    """The first delta of an answer, short so that it leaves early."""
    undelivered_ms: int = 500
    """How much audio may wait for a slow reader, all responses of the session together."""
    hold_above_ms: int = 8_000
    """Produced but unsent audio above which the pipeline is held."""
    hold_below_ms: int = 4_000
    """… and below which it goes on."""
    input_buffer_ms: int = 300_000
    """Uncommitted input audio (manual turn detection)."""
    item_audio_ms: int = 120_000
    """Audio kept with items, newest first, for `conversation.item.retrieve`."""
    event_bytes: int = 960_000
    """A session or an item of a client that would make a larger event is refused: stock clients take frames below 1 MiB."""
    retrieve_audio_bytes: int = 640_000
    """An item with more audio than this is retrieved without it, to keep the event below 1 MiB."""
    max_items: int = 500
    """Items of the conversation; the oldest go first."""
    max_text: int = 4_000_000
    """Characters of the conversation (transcripts, arguments, results); the oldest items go first."""
    max_responses: int = 8
    """Responses in progress at once, out-of-band ones included."""
    responses_per_minute: int = 240
    """Responses started in a minute (a token bucket, announced by `rate_limits.updated`)."""
    transcript_wait_ms: int = 15_000
    """How long the transcript of an item may take; the responses that wait for it fail then."""
