"""The client for pictures and clips, against a real server whose engine is a small painter."""

from __future__ import annotations

import socket
import time
from typing import Any

import httpx
import pytest
from antiphon.clients.media import Job, MediaClient, MediaFailed
from antiphon.tests.gateway.studio import studio


async def test_a_clip_is_ordered_followed_fetched_and_deleted(tmp_path):
    seen: list[Job] = []
    async with studio(tmp_path, step_s=0.1) as server, MediaClient(server.url) as media:
        job = await media.submit_clip("a red disc moving left", seconds="0.5", seed=7, num_inference_steps=6, size=None)
        done = await media.follow(job, within=30, on_change=seen.append)
        assert (done["status"], done["seed"], done["steps"], done["seconds"]) == ("completed", 7, 6, "0.5")
        progress = [found["progress"] for found in seen]
        assert progress == sorted(progress)
        assert len(progress) > 2
        assert seen[-1] == done
        assert (await media.content(done))[4:8] == b"ftyp"
        assert (await media.content(done, variant="thumbnail")).startswith(b"RIFF")
        assert [found["id"] for found in await media.clips()] == [job["id"]]
        assert await media.pictures() == []
        await media.delete(done)
        assert await media.clips() == []
        with pytest.raises(MediaFailed, match="There is no video") as gone:
            await media.look(done)
        assert (gone.value.status, gone.value.code) == (404, "video_not_found")


async def test_several_pictures_of_one_job(tmp_path):
    async with studio(tmp_path) as server, MediaClient(server.url) as media:
        done = await media.follow(await media.submit_picture("a blue disc", n=2, seed=1), within=30)
        first, second = await media.content(done), await media.content(done, index=1)
        assert first.startswith(b"\x89PNG")
        assert first != second


async def test_a_failed_job_says_why(tmp_path):
    async with studio(tmp_path) as server, MediaClient(server.url) as media:
        with pytest.raises(MediaFailed, match="the painter refuses") as failed:
            await media.follow(await media.submit_picture("refuse"), within=30)
        assert failed.value.code == "invalid_request"


async def test_what_cannot_be_ordered_is_refused_at_once(tmp_path):
    async with studio(tmp_path) as server, MediaClient(server.url) as media:
        began = time.monotonic()
        with pytest.raises(MediaFailed, match="size") as refused:
            await media.submit_clip("a disc", size="13x13")
        assert refused.value.status == 400
        assert time.monotonic() - began < 10


async def test_a_busy_server_is_asked_again_until_it_takes_the_job(tmp_path):
    async with studio(tmp_path, step_s=0.2, jobs={"max_active": 1}) as server, MediaClient(server.url) as media:
        first = await media.submit_picture("a red disc")
        second = await media.submit_picture("a blue disc")
        assert (await media.look(first))["status"] == "completed"
        await media.follow(second, within=30)
        assert [job["id"] for job in await media.pictures()] == [second["id"], first["id"]]


async def test_a_busy_server_is_not_asked_for_ever(tmp_path):
    async with studio(tmp_path, step_s=0.5, jobs={"max_active": 1}) as server, MediaClient(server.url, patience=0.2) as media:
        await media.submit_picture("a red disc", num_inference_steps=300)
        with pytest.raises(MediaFailed) as refused:
            await media.submit_picture("a blue disc")
        assert refused.value.status == 429


async def test_a_lost_answer_does_not_make_two_jobs(tmp_path):
    async with studio(tmp_path) as server, MediaClient(server.url) as media:
        http: Any = media._http
        request, lost = http.request, []

        async def lossy(method: str, path: str, **options: Any) -> Any:
            answer = await request(method, path, **options)
            if method == "POST" and not lost:
                lost.append(answer.json()["id"])
                raise httpx.ReadError("the connection broke")
            return answer

        http.request = lossy
        job = await media.submit_picture("a red disc")
        assert lost == [job["id"]]
        assert len(await media.pictures()) == 1


async def test_a_server_that_is_not_there_is_told():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    async with MediaClient(url, patience=1.0) as media:
        with pytest.raises(MediaFailed, match="does not answer") as failed:
            await media.clips()
    assert failed.value.code == "unreachable"


async def test_the_key_goes_along(tmp_path):
    async with studio(tmp_path, server={"api_keys": ("sesame",)}) as server:
        async with MediaClient(server.url, api_key="sesame") as media:
            assert await media.clips() == []
        async with MediaClient(server.url) as media:
            with pytest.raises(MediaFailed, match="API key"):
                await media.clips()
