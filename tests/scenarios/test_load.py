"""The load client, and what is made of its counts."""

import asyncio

import pytest
from antiphon.scenarios.load_client import Load, frame
from antiphon.scenarios.load_figures import Steady
from antiphon.scenarios.load_voice import TEXT
from antiphon.scenarios.processes import measure
from antiphon.scenarios.server import Server


@pytest.mark.parametrize(("size", "head"), [(5, 6), (300, 8), (70_000, 14)])
def test_a_frame_is_masked_with_zeros_so_that_it_can_be_written_again(size, head):
    data = frame(b"x" * size)
    assert data[0] == 0x81
    assert data[1] & 0x80
    assert data[head - 4 : head] == bytes(4)
    assert data[head:] == b"x" * size


async def test_sessions_send_and_hear_audio_in_real_time(tmp_path):
    async with Server(log=tmp_path / "server.log", options=("--pipeline", "tone")) as server:
        load = Load(server.url, model="antiphon-tone", text=TEXT, frame_ms=20, api_key=None)
        sending = asyncio.create_task(load.run())
        await load.grow(3, spread_s=0.0)
        await asyncio.sleep(2.5)
        counts = load.reset()
        assert server.pid is not None
        cost = measure(server.pid)
        load.close()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    assert (counts.errors, counts.lost) == (0, 0), counts.last_error
    assert counts.sent_frames >= 3 * 100
    assert 3 * 1.5 < counts.audio_s < 3 * 3.5
    assert len(counts.first_audio) == 3
    assert cost.rss > 20_000_000


async def test_a_refused_session_says_why(tmp_path):
    async with Server(log=tmp_path / "server.log", options=("--pipeline", "tone")) as server:
        load = Load(f"{server.url}", model="antiphon-tone", text=TEXT, frame_ms=20, api_key=None)
        load._path = "/v1/nothing"
        with pytest.raises(ConnectionError, match="refused"):
            await load.grow(1)


def test_memory_growth_counts_after_the_warm_up_only():
    samples = [(minute / 6, 100.0 + min(minute, 15) * 10, 3, 50) for minute in range(60)]
    assert Steady(1, samples).growth_percent == pytest.approx(0)
    leaking = [(minute / 6, 100.0 + minute, 3, 50) for minute in range(60)]
    assert Steady(1, leaking).growth_percent > 10
    assert Steady(1, samples[:16]).growth_percent is None


async def test_a_server_that_cannot_start_shows_the_end_of_its_log(tmp_path):
    from antiphon.scenarios.server import ServerFailed

    (tmp_path / "bad.toml").write_text("[server]\nnonsense = 1\n")
    with pytest.raises(ServerFailed, match="nonsense"):
        async with Server(log=tmp_path / "server.log", options=("--config", str(tmp_path / "bad.toml"))):
            pass
