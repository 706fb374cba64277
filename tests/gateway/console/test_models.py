"""What the console makes of recorded events: its modules without a document, run in Chromium."""

from __future__ import annotations

from typing import Any

from antiphon.tests.gateway.conftest import RunningServer

from .conftest import OpenConsole


def item(id: str, role: str, **part: Any) -> dict[str, Any]:
    return {"id": id, "type": "message", "role": role, "content": [part] if part else []}


SPOKEN = {"response_id": "r1", "item_id": "a1"}
INTERRUPTED: list[dict[str, Any]] = [
    {"type": "input_audio_buffer.speech_started", "item_id": "u1", "audio_start_ms": 700},
    {"type": "conversation.item.input_audio_transcription.delta", "item_id": "u1", "delta": "Tell me "},
    {"type": "input_audio_buffer.speech_stopped", "item_id": "u1", "audio_end_ms": 2500},
    {"type": "input_audio_buffer.committed", "item_id": "u1", "previous_item_id": None},
    {"type": "conversation.item.added", "previous_item_id": None, "item": item("u1", "user", type="input_audio", transcript=None)},
    {"type": "conversation.item.input_audio_transcription.completed", "item_id": "u1", "transcript": "Tell me about Paris."},
    {"type": "response.created", "response": {"id": "r1", "status": "in_progress"}},
    {"type": "conversation.item.added", "previous_item_id": "u1", "item": item("a1", "assistant")},
    {"type": "response.output_audio_transcript.delta", **SPOKEN, "delta": "Paris is old. "},
    {"type": "response.output_audio.delta", **SPOKEN, "duration_ms": 1000},
    {"type": "response.output_audio_transcript.delta", **SPOKEN, "delta": "It has a tower."},
    {"type": "response.output_audio.delta", **SPOKEN, "duration_ms": 1000},
    {"type": "input_audio_buffer.speech_started", "item_id": "u2", "audio_start_ms": 6000},
    {"type": "conversation.item.truncated", "item_id": "a1", "content_index": 0, "audio_end_ms": 1400},
    {"type": "conversation.item.retrieved", "item": item("a1", "assistant", type="output_audio", transcript="Paris is old. It has")},
    {"type": "response.done", "response": {"id": "r1", "status": "cancelled", "output": []}},
]


async def test_the_conversation_reads_as_it_was_heard(server: RunningServer, console: OpenConsole) -> None:
    async with console(server.url) as it:

        async def lines(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
            script = """async (events) => {
                const { Conversation } = await import("/console/js/talk/conversation.js");
                const made = new Conversation();
                events.forEach((event, index) => made.apply(event, index * 100));
                return made.lines;
            }"""
            made: list[dict[str, Any]] = await it.page.evaluate(script, events)
            return made

        partial = await lines(INTERRUPTED[:2])
        assert [(line["text"], line["state"]) for line in partial] == [("Tell me ", "listening")]

        whole = await lines(INTERRUPTED)
        assert [line["id"] for line in whole] == ["u1", "a1", "u2"]
        answer = whole[1]
        assert answer["text"] == "Paris is old. It has a tower."
        assert answer["text"][: answer["kept"]] == "Paris is old. It has"
        assert answer["state"] == "done"

        spoken = {"type": "conversation.item.truncated", "item_id": "a1", "content_index": 0, "audio_end_ms": 500}
        early = (await lines([*INTERRUPTED[:9], {**INTERRUPTED[9], "duration_ms": 600}, spoken]))[1]
        assert early["text"][: early["kept"]] == "Paris is", "of a piece whose audio has not all come, the length is estimated"

        guessed = (await lines(INTERRUPTED[:-2]))[1]
        assert guessed["text"][: guessed["kept"]] == "Paris is old. It has", "before the server says, the words are counted by their times"

        unheard = (
            await lines(
                [*INTERRUPTED[:13], {"type": "conversation.item.truncated", "item_id": "a1", "content_index": 0, "audio_end_ms": 0}]
            )
        )[1]
        assert unheard["kept"] == 0

        late = {"type": "conversation.item.added", "previous_item_id": "u1", "item": item("between", "user", type="input_text", text="hi")}
        assert [line["id"] for line in await lines([*INTERRUPTED, late])] == ["u1", "between", "a1", "u2"]


async def test_a_turn_is_timed_by_the_browser_until_the_server_tells(server: RunningServer, console: OpenConsole) -> None:
    script = """async (events) => {
        const { Timings, segments, total, median } = await import("/console/js/talk/timings.js");
        const timings = new Timings();
        events.forEach((event, index) => timings.apply(event, index * 100, { silence_duration_ms: 50 }));
        const browser = { parts: segments(timings.turns[0]), total: total(timings.turns[0]), status: timings.turns[0].status };
        const marks_ms = { committed: 520, transcript_ready: 480, first_audio: 900 };
        timings.learn({ turns: [{ item_id: "u1", marks_ms, stages_ms: { chat: { first: 700 } } }, { item_id: "unknown", marks_ms: {} }] });
        const medians = [median([]), median([3, 1, 2]), median([1, 2])];
        return { browser, server: segments(timings.turns[0]), total: total(timings.turns[0]), turns: timings.turns.length, medians };
    }"""
    async with console(server.url) as it:
        made = await it.page.evaluate(script, INTERRUPTED)
    assert made["browser"]["parts"] == [
        {"name": "endpoint", "from": 0, "to": 50},
        {"name": "transcript", "from": 50, "to": 350},
        {"name": "text", "from": 350, "to": 650},
        {"name": "audio", "from": 650, "to": 750},
    ]
    assert made["browser"]["status"] == "cancelled"
    # The transcript was ready before the end of the turn was certain: it cost nothing.
    assert made["server"] == [
        {"name": "endpoint", "from": 0, "to": 520},
        {"name": "text", "from": 520, "to": 700},
        {"name": "audio", "from": 700, "to": 900},
    ]
    assert (made["total"], made["turns"], made["medians"]) == (900, 1, [None, 2, 1.5])


async def test_the_event_log_is_bounded_counts_audio_and_filters(server: RunningServer, console: OpenConsole) -> None:
    script = """async () => {
        const { EventLog, matcher } = await import("/console/js/talk/event-log.js");
        const log = new EventLog();
        for (let n = 0; n < 1500; n++) log.add("received", { type: "response.output_text.delta", n }, n);
        const bound = [log.entries.length, log.entries[0].event.n];
        log.clear();
        for (let n = 0; n < 10; n++) {
            log.add("sent", { type: "input_audio_buffer.append" }, n);
            log.add("received", { type: "response.output_audio.delta", response_id: "r7" }, n);
        }
        log.add("received", { type: "error", error: { message: "no" } }, 20);
        log.add("sent", { type: "input_audio_buffer.append" }, 21);
        const shown = (typed, direction) => log.shown(matcher(typed, direction)).map((entry) => `${entry.event.type}×${entry.count}`);
        log.paused = true;
        log.add("sent", { type: "response.create" }, 22);
        const [errors, sent] = [shown("", "errors"), shown("append", "sent")];
        return { bound, all: shown(""), without: shown("-audio"), errors, sent, id: shown("R7 delta"), missed: log.missed };
    }"""
    async with console(server.url) as it:
        made = await it.page.evaluate(script)
    assert made == {
        "bound": [1000, 500],
        "all": ["input_audio_buffer.append×10", "response.output_audio.delta×10", "error×1", "input_audio_buffer.append×1"],
        "without": ["error×1"],
        "errors": ["error×1"],
        "sent": ["input_audio_buffer.append×10", "input_audio_buffer.append×1"],
        "id": ["response.output_audio.delta×10"],
        "missed": 1,
    }


async def test_a_microphone_at_another_rate_is_resampled(server: RunningServer, console: OpenConsole) -> None:
    """Browsers that cannot bring the microphone to 24 kHz give it at the device's rate: 1 kHz in must be 1 kHz out, 15 kHz nothing."""
    script = """async () => {
        const heard = async (rate, hertz) => {
            const context = new AudioContext({ sampleRate: rate });
            await context.audioWorklet.addModule("/console/js/audio/capture-worklet.js");
            const tone = new OscillatorNode(context, { frequency: hertz });
            const capture = new AudioWorkletNode(context, "antiphon-capture", { numberOfOutputs: 0 });
            const blocks = [];
            capture.port.onmessage = ({ data }) => blocks.push(...data.samples);
            tone.connect(capture);
            tone.start();
            await new Promise((resolve) => setTimeout(resolve, 700));
            await context.close();
            const samples = blocks.slice(2400, 12000);
            const crossings = samples.filter((sample, at) => at && samples[at - 1] < 0 && sample >= 0).length;
            return [samples.length, crossings, Math.max(...samples.map(Math.abs))];
        };
        return [await heard(48000, 1000), await heard(44100, 1000), await heard(48000, 15000), await heard(24000, 1000)];
    }"""
    async with console(server.url) as it:
        made = await it.page.evaluate(script)
    for samples, crossings, peak in (made[0], made[1], made[3]):
        assert samples > 4000
        assert abs(crossings - samples / 24) <= 2
        assert 31000 < peak <= 32767
    assert made[2][2] < 1000, "what cannot be carried at 24 kHz is filtered out, not folded down"


async def test_the_player_knows_what_it_played(server: RunningServer, console: OpenConsole) -> None:
    script = """async () => {
        const { Player } = await import("/console/js/audio/player.js");
        const player = await Player.start();
        const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
        const second = new Int16Array(24000).fill(8000);
        player.play("short", 0, second.slice(0, 4800));
        player.finish("short");
        player.play("long", 0, second);
        player.play("next", 0, second);
        await wait(800);
        const before = { playing: player.playing, short: player.heardMs("short"), level: player.level };
        const cut = player.stop();
        const late = player.play("long", 0, second);
        await wait(300);
        const after = { playing: player.playing, long: player.heardMs("long"), level: player.level, nothing: player.stop().length };
        await player.close();
        return { before, cut, late, after };
    }"""
    async with console(server.url) as it:
        made = await it.page.evaluate(script)
    assert made["before"]["playing"]
    assert made["before"]["short"] == 200
    assert made["before"]["level"] > 0.2
    assert [each["itemId"] for each in made["cut"]] == ["long", "next"]
    assert 150 < made["cut"][0]["heardMs"] < 700
    assert made["cut"][1]["heardMs"] == 0
    assert made["late"] is False
    assert made["after"] == {"playing": False, "long": made["cut"][0]["heardMs"], "level": 0, "nothing": 0}


async def test_words_are_counted_at_the_usual_pace_where_audio_travels_on_a_track(server: RunningServer, console: OpenConsole) -> None:
    script = """async () => {
        const { Conversation } = await import("/console/js/talk/conversation.js");
        const made = new Conversation();
        const place = { type: "response.output_audio_transcript.delta", response_id: "r", item_id: "a" };
        for (const delta of ["Paris is old. ", "It has a tower."]) made.apply({ ...place, delta }, 0);
        made.apply({ type: "response.done", response: { id: "r", status: "completed" } }, 1);
        made.apply({ type: "conversation.item.truncated", item_id: "a", audio_end_ms: 1100 }, 2);
        return made.lines[0].text.slice(0, made.lines[0].kept);
    }"""
    async with console(server.url) as it:
        assert await it.page.evaluate(script) == "Paris is old. It has"
