"""Calls over bad networks: what the server still hears, how soon it is quiet, and what it lets go of.

Every call crosses an `ImpairedLink`. Callers send speech that carries in-band FEC, and redundant audio (RED) where that is
named, as browsers do. What was heard is read from the server's own report of the call; what was sent by the server is timed
packet by packet.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import httpx
import numpy as np
from rich.text import Text

from ..clients.errors import CouldNotConnect
from ..clients.media_caller import MediaCaller, keep_talking
from ..codecs import opus, pcm
from .impaired_link import ImpairedLink, Impairment
from .processes import Cost, measure
from .report import Figure, Report
from .server import Server
from .voice import Setting

MODEL = "antiphon-tone"
ANSWER = "This answer is only a tone, and it goes on for a good while, so that there is something to be cut short in the middle. "
HEARD_AIM = 99.5
HELD_AIM_MS = 60.0
FREED_AIM_S = 15.0
POLL = 0.25
"""Seconds by which the end of a call may be noticed late: the poll's interval and the answer's time on a busy machine."""
MEMORY_AIM_MB = 2.0


@dataclass(frozen=True, slots=True)
class Uplink:
    """A network from the caller to the server, by name. `aim`: percent of audio that must be heard."""

    name: str
    impairment: Impairment
    red: bool = False
    aim: float | None = HEARD_AIM


UPLINKS = (
    Uplink("clean", Impairment()),
    Uplink("2 % loss", Impairment(loss=0.02)),
    Uplink("5 % loss", Impairment(loss=0.05)),
    Uplink("5 % loss, RED", Impairment(loss=0.05), red=True),
    Uplink("10 % loss", Impairment(loss=0.10)),
    Uplink("10 % loss, RED", Impairment(loss=0.10), red=True),
    Uplink("bursts (2 % in, 50 % out)", Impairment(burst=(0.02, 0.5))),
    Uplink("jitter 30 ms, in order", Impairment(jitter=0.030), aim=99.0),
    Uplink("jitter 15 ms, reordered", Impairment(jitter=0.015, reorder=True), aim=99.0),
)


def speech(seconds: float = 4.0) -> list[bytes]:
    """Encoded frames of something like speech, with FEC."""
    t = np.arange(int(seconds * pcm.SAMPLE_RATE)) / pcm.SAMPLE_RATE
    phase = 2 * np.pi * np.cumsum(125 + 25 * np.sin(2 * np.pi * 0.6 * t)) / pcm.SAMPLE_RATE
    wave = sum(np.sin(k * phase) / k for k in range(1, 20)) * (0.55 + 0.45 * np.sin(2 * np.pi * 3.5 * t)) * 0.2
    audio = pcm.from_float(wave.astype(np.float32))
    encoder = opus.OpusEncoder(bitrate=32_000, dtx=False)
    encoder.protect(10)
    step = 2 * encoder.frame_samples
    return [encoder.encode(audio[at : at + step]) for at in range(0, len(audio) - step + 1, step)]


async def run(setting: Setting) -> bool:
    """All of it, in about two minutes; whether the aims were met."""
    report = Report("impairment", [])
    async with setting.server() as server:
        steps = (_uplinks, _burst, _downlinks, _clear, _rebinding, _gone, _cycles, _bad_offers)
        for step in steps:
            setting.console.print(Text(step.__doc__ or "", style="dim"))
            await step(setting, server, report)
    report.show(setting.console)
    report.save(setting.out)
    return report.passed


def _note(report: Report, name: str, value: str, aim: str, met: bool | None, note: str = "") -> None:
    report.figures.append(Figure(name, value, aim, met, note))
    if met is False:
        report.failures.append(f"{name}: {value}, aim {aim}.")


async def _call(setting: Setting, server: Server, link: ImpairedLink, *, red: bool = False, **session: Any) -> MediaCaller:
    caller = MediaCaller(red=red)
    manual = {"audio": {"input": {"turn_detection": None, "transcription": None}}}
    await caller.connect(server.url, model=MODEL, session={**manual, **session}, api_key=setting.api_key, rewrite=link.rewrite)
    return caller


async def _state(setting: Setting, server: Server, caller: MediaCaller) -> dict[str, Any] | None:
    """The server's report of a call; None when it is over."""
    headers = {"Authorization": f"Bearer {setting.api_key}"} if setting.api_key else {}
    async with httpx.AsyncClient(base_url=server.url, timeout=10, trust_env=False, headers=headers) as http:
        response = await http.get(f"/v1/realtime/calls/{caller.call_id}")
        return None if response.status_code == 404 else dict(response.raise_for_status().json())


# ---- the caller's audio ---------------------------------------------------------------------------------------------


async def _uplinks(setting: Setting, server: Server, report: Report) -> None:
    """What is heard through loss, bursts, jitter and reordering (all networks at once)."""
    links = [ImpairedLink(seed=7, up=uplink.impairment) for uplink in UPLINKS]
    callers = [await _call(setting, server, link, red=uplink.red) for link, uplink in zip(links, UPLINKS, strict=True)]
    late = await keep_talking(callers, speech(), time.monotonic() + 12)
    await asyncio.sleep(0.4)
    rows = []
    for uplink, link, caller in zip(UPLINKS, links, callers, strict=True):
        state = await _state(setting, server, caller)
        assert state is not None, f"the call over '{uplink.name}' is gone"
        got = state["received"]
        heard = 100 * (got["decoded"] + got["fec"] + got["concealed"]) / caller.sent
        exact = 100 * (got["decoded"] + got["fec"]) / caller.sent
        lost = 100 * link.dropped["up"] / max(1, sum((link.dropped["up"], link.passed["up"])))
        note = f"{lost:.1f} % lost; {got['red']} by RED, {got['fec']} by FEC, {got['concealed']} concealed, {got['late']} late"
        aim = "" if uplink.aim is None else f">= {uplink.aim:g} %"
        _note(report, f"heard, {uplink.name}", f"{heard:.1f} %", aim, uplink.aim is None or heard >= uplink.aim, note)
        rows.append({"network": uplink.name, "heard": heard, "without_concealment": exact, "lost": lost, **got})
    report.details["uplinks"] = rows
    report.details["caller_worst_lateness_ms"] = late * 1000
    await asyncio.gather(*(caller.close() for caller in callers))
    for link in links:
        link.close()


async def _burst(setting: Setting, server: Server, report: Report) -> None:
    """How long packets are held back after a second of heavy loss and reordering."""
    link = ImpairedLink(seed=3)
    caller = await _call(setting, server, link)
    frames = speech()
    await keep_talking([caller], frames, time.monotonic() + 1)
    link.up = Impairment(burst=(0.2, 0.3), jitter=0.030, reorder=True)
    await keep_talking([caller], frames, time.monotonic() + 1)
    during = await _state(setting, server, caller)
    link.up = Impairment(loss=0.02)
    await keep_talking([caller], frames, time.monotonic() + 4)
    after = await _state(setting, server, caller)
    assert during is not None
    assert after is not None
    held = after["received"]["held_ms"]
    note = f"{during['received']['held_ms']:.0f} ms during it; at 2 % loss afterwards"
    _note(report, "held back, 2 s after a burst", f"{held:.0f} ms", f"<= {HELD_AIM_MS:g} ms", held <= HELD_AIM_MS, note)
    await caller.close()
    link.close()


# ---- the server's audio ---------------------------------------------------------------------------------------------


async def _downlinks(setting: Setting, server: Server, report: Report) -> None:
    """What of the server's audio a caller cannot repair at 10 % loss, once it has reported the loss."""
    link = ImpairedLink(seed=9)
    caller = await _call(setting, server, link, red=True)
    await _ask(caller)
    link.down = Impairment(loss=0.10)
    await keep_talking([caller], speech(), time.monotonic() + 4)
    mark = len(caller.arrivals)
    await keep_talking([caller], speech(), time.monotonic() + 6)
    lost = repaired = 0
    for before, after in itertools.pairwise(caller.arrivals[mark:]):
        missing = (after.sequence - before.sequence - 1) & 0xFFFF
        lost += missing
        repaired += missing > 0 and (after.redundant or opus.has_fec(after.payload))
    total = len(caller.arrivals) - mark + lost
    left = 100 * (lost - repaired) / max(1, total)
    _note(report, "beyond repair at the caller, 10 % loss", f"{left:.1f} %", "<= 3 %", left <= 3, f"{lost} of {total} lost")
    await caller.close()
    link.close()


async def _ask(caller: MediaCaller) -> None:
    content = [{"type": "input_text", "text": ANSWER * 2}]
    caller.send_event({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}})
    caller.send_event({"type": "response.create"})


def _loud(caller: MediaCaller) -> list[tuple[float, bool]]:
    """Each packet that came: when, and whether anything is heard in it."""
    decoder = opus.OpusDecoder()
    return [(a.at, pcm.rms(decoder.decode(a.payload)) > 0.01) for a in caller.arrivals if a.payload]


async def _clear(setting: Setting, server: Server, report: Report) -> None:
    """How soon the track is silent after output_audio_buffer.clear, and whether a clean track is even."""
    worst, gaps, packets = 0.0, 0.0, 0
    for _ in range(5):
        link = ImpairedLink()
        caller = await _call(setting, server, link)
        await _ask(caller)
        await caller.wait_for("response.content_part.added")
        await asyncio.sleep(1.0)
        mark = len(caller.events)
        caller.send_event({"type": "output_audio_buffer.clear"})
        cleared, _ = await caller.wait_for("output_audio_buffer.cleared", since=mark)
        await asyncio.sleep(0.5)
        heard = [at for at, loud in _loud(caller) if loud]
        worst = max(worst, heard[-1] - cleared)
        packets = max(packets, sum(at > cleared for at in heard))
        gaps = max(gaps, max(b - a for a, b in itertools.pairwise(heard)))
        steps = {(b.timestamp - a.timestamp) & 0xFFFFFFFF for a, b in itertools.pairwise(caller.arrivals)}
        assert all(step % 960 == 0 for step in steps), f"the track's time does not step evenly: {steps}"
        await caller.close()
        link.close()
    value = f"{packets} packets, {max(0.0, worst) * 1000:.0f} ms"
    note = f"worst of 5, after output_audio_buffer.cleared came; widest gap between packets {gaps * 1000:.0f} ms"
    _note(report, "speech after a clear", value, "<= 1 packet (the fade)", packets <= 1, note)


async def _rebinding(setting: Setting, server: Server, report: Report) -> None:
    """A NAT that gives the caller a new port in mid-sentence."""
    link = ImpairedLink()
    caller = await _call(setting, server, link)
    await _ask(caller)
    await caller.wait_for("response.content_part.added")
    frames = speech()
    await keep_talking([caller], frames, time.monotonic() + 1)
    moved = time.monotonic()
    await link.rebind()
    await keep_talking([caller], frames, time.monotonic() + 2)
    state = await _state(setting, server, caller)
    lost = state["received"]["lost"] if state is not None else -1
    gap = next((a.at for a in caller.arrivals if a.at > moved + 0.005), moved + 9) - moved
    met = state is not None and lost <= 1 and gap < 0.2
    _note(report, "a NAT's new port", f"{lost} lost, {gap * 1000:.0f} ms gap", "<= 1 lost, gap < 200 ms", met)
    await caller.close()
    link.close()


# ---- ends -----------------------------------------------------------------------------------------------------------


async def _until_freed(setting: Setting, server: Server, caller: MediaCaller, patience: float = 25.0) -> float:
    began = time.monotonic()
    while time.monotonic() < began + patience:
        if await _state(setting, server, caller) is None:
            break
        await asyncio.sleep(0.1)
    return time.monotonic() - began


async def _gone(setting: Setting, server: Server, report: Report) -> None:
    """A caller who vanishes (every datagram lost from now on), and one who never comes."""
    vanishing = ImpairedLink()
    caller = await _call(setting, server, vanishing)
    await keep_talking([caller], speech(), time.monotonic() + 0.5)
    absent, nowhere = MediaCaller(), ImpairedLink(up=Impairment(blackout=True))
    waiting = asyncio.create_task(absent.connect(server.url, model=MODEL, api_key=setting.api_key, rewrite=nowhere.rewrite, timeout=30))
    while not absent.call_id:  # noqa: ASYNC110 - set on the way to connecting
        await asyncio.sleep(0.01)
    vanishing.up = vanishing.down = Impairment(blackout=True)
    freed = await asyncio.gather(*(_until_freed(setting, server, one) for one in (caller, absent)))
    for name, seconds in zip(("a vanished caller", "a no-show"), freed, strict=True):
        _note(
            report,
            f"{name} is freed after",
            f"{seconds:.1f} s",
            f"<= {FREED_AIM_S:g} s (+ {POLL:g} to notice)",
            seconds <= FREED_AIM_S + POLL,
        )
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.gather(caller.close(), absent.close())
    vanishing.close()
    nowhere.close()


async def _cycles(setting: Setting, server: Server, report: Report) -> None:
    """200 calls that come and go, four at a time."""
    if server.pid is None:
        _note(report, "200 calls leave behind", "not measured", "", None, "only for a server that is started here")
        return

    async def one() -> None:
        caller = MediaCaller(keep=False)
        await caller.connect(server.url, model=MODEL, api_key=setting.api_key)
        for frame in frames[:5]:
            caller.send_frame(frame)
        await caller.close()

    async def rounds(count: int) -> None:
        for _ in range(count // 4):
            await asyncio.gather(*(one() for _ in range(4)))
        await asyncio.sleep(1.0)

    frames = speech(1.0)
    await rounds(100)
    before = measure(server.pid)
    await rounds(200)
    after = measure(server.pid)
    grown = (after.rss - before.rss) / 1e6
    met = after.threads <= before.threads and after.files <= before.files and grown <= MEMORY_AIM_MB
    value = f"{after.threads - before.threads} threads, {after.files - before.files} files, {grown:+.1f} MB"
    _note(report, "200 calls leave behind", value, f"0, 0, <= {MEMORY_AIM_MB:g} MB", met)
    report.details["cycles"] = [_plain(before), _plain(after)]


def _plain(cost: Cost) -> dict[str, Any]:
    return asdict(cost)


async def _bad_offers(setting: Setting, server: Server, report: Report) -> None:
    """Offers that nobody means well with."""
    headers = {"Content-Type": "application/sdp"} | ({"Authorization": f"Bearer {setting.api_key}"} if setting.api_key else {})
    answers: list[int] = []
    async with httpx.AsyncClient(base_url=server.url, timeout=10, trust_env=False, headers=headers) as http:
        for offer in bad_offers():
            response = await http.post("/v1/realtime/calls", content=offer)
            answers.append(response.status_code)
            if 400 <= response.status_code < 500 and not response.json()["error"]["message"]:
                answers[-1] = 0
        alive = (await http.get("/livez")).status_code == 200
    refused = sum(400 <= status < 500 for status in answers)
    _note(report, "bad offers refused", f"{refused} of {len(answers)}", "all, with a 4xx", refused == len(answers) and alive)


def bad_offers() -> Sequence[bytes]:
    """Empty, garbage, no audio, no credentials, too many sections, too long, binary."""
    head = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n"
    audio = "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=rtpmap:111 opus/48000/2\r\na=mid:0\r\na=rtcp-mux\r\n"
    video = "m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=rtpmap:96 VP8/90000\r\na=mid:0\r\n"
    texts = ("", "garbage", head, head + video, head + audio, head + 400 * audio, head + audio + "a=x:" + "y" * 200_000)
    return (*(text.encode() for text in texts), bytes(range(256)) * 20, b"v=0\r\n" + b"\xff\xfe" * 50)


__all__ = ["CouldNotConnect", "Uplink", "bad_offers", "run", "speech"]
