"""`/v1/videos` on a real server with a real queue."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any

import av
import httpx
import pytest
from antiphon.tests.gateway.conftest import RunningServer, eventually
from antiphon.tests.gateway.media.conftest import client_of, ended, painter_of
from antiphon.tests.gateway.media.test_images import opened, picture

PATH = "/v1/videos"


async def ordered(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post(PATH, json={"prompt": "a red disc", **body})
    assert answer.status_code == 200, answer.text
    video: dict[str, Any] = answer.json()
    return video


async def completed(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    video = await ended(client, f"{PATH}/{(await ordered(client, **body))['id']}")
    assert video["status"] == "completed", video
    return video


def measured(data: bytes) -> tuple[str, int, float]:
    """Size, frames and seconds of an MP4 file."""
    with av.open(io.BytesIO(data)) as container:
        stream = container.streams.video[0]
        count = sum(1 for _ in container.decode(stream))
        assert container.duration is not None
        return f"{stream.width}x{stream.height}", count, container.duration / 1e6


@pytest.mark.parametrize(
    ("asked", "size", "frames", "seconds"),
    [
        ({}, "64x64", 32, 4.0),
        ({"size": "720x1280", "seconds": "2"}, "720x1280", 16, 2.0),
        ({"size": "1280x720", "seconds": "1.5"}, "1280x720", 12, 1.5),
        ({"seconds": "12"}, "64x64", 48, 12.0),
        ({"num_frames": 10, "fps": 5}, "64x64", 10, 2.0),
        ({"num_frames": 9}, "64x64", 9, 1.125),
    ],
)
async def test_the_clip_is_as_large_and_long_as_was_asked(
    client: httpx.AsyncClient, asked: dict[str, Any], size: str, frames: int, seconds: float
) -> None:
    video = await completed(client, **asked)
    assert (video["size"], float(video["seconds"]), video["progress"]) == (size, seconds, 100)
    answer = await client.get(f"{PATH}/{video['id']}/content")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "video/mp4")
    found, count, lasts = measured(answer.content)
    assert (found, count) == (size, frames)
    assert lasts == pytest.approx(seconds, abs=0.05)


async def test_every_file_of_a_clip(client: httpx.AsyncClient) -> None:
    video = await completed(client, seconds="1")
    path = f"{PATH}/{video['id']}/content"
    whole = await client.get(path)
    assert whole.content[4:8] == b"ftyp"
    assert opened((await client.get(f"{path}?variant=thumbnail")).content).size[0] > 0
    assert opened((await client.get(f"{path}?variant=spritesheet")).content).size[0] > 0
    part = await client.get(path, headers={"range": "bytes=4-7"})
    assert (part.status_code, part.content) == (206, b"ftyp")
    assert (await client.get(path, headers={"range": f"bytes={len(whole.content)}-"})).status_code == 416
    assert (await client.head(path)).headers["content-length"] == str(len(whole.content))
    assert (await client.get(path, headers={"if-none-match": whole.headers["etag"]})).status_code == 304
    assert (await client.get(f"{path}?variant=sound")).status_code == 400


async def test_a_form_and_json_are_the_same(client: httpx.AsyncClient) -> None:
    fields = {"prompt": "a red disc", "seconds": "1", "seed": "5"}
    answer = await client.post(PATH, files={name: (None, value) for name, value in fields.items()})
    assert answer.status_code == 200, answer.text
    form = await ended(client, f"{PATH}/{answer.json()['id']}")
    plain = await completed(client, seconds="1", seed=5)
    contents = [(await client.get(f"{PATH}/{one['id']}/content")).content for one in (form, plain)]
    assert contents[0] == contents[1]


async def test_a_clip_that_starts_from_a_picture(client: httpx.AsyncClient, media: RunningServer) -> None:
    answer = await client.post(PATH, data={"prompt": "x", "seconds": "1"}, files={"input_reference": ("a.png", picture())})
    assert answer.status_code == 200, answer.text
    assert (await ended(client, f"{PATH}/{answer.json()['id']}"))["status"] == "completed"
    upload = (await client.post("/v1/files", data={"purpose": "vision"}, files={"file": ("a.png", picture())})).json()
    await completed(client, seconds="1", input_reference={"file_id": upload["id"]})
    data_url = "data:image/png;base64," + __import__("base64").b64encode(picture()).decode()
    await completed(client, seconds="1", input_reference={"image_url": data_url})
    assert all(body.image is not None for body in painter_of(media).bodies)


@pytest.mark.parametrize(
    ("reference", "status"),
    [
        ({}, 400),
        ({"file_id": "file-x", "image_url": "data:image/png;base64,"}, 400),
        ({"file_id": "file-" + "0" * 27}, 404),
        ({"file_id": "../../x"}, 404),
        ({"image_url": "http://127.0.0.1:1/x.png"}, 400),
        ({"image_url": "file:///etc/passwd"}, 400),
        ({"image_url": "data:image/png;base64,%%%"}, 400),
        ({"image_url": "data:image/png;base64,aGFsbG8="}, 400),
    ],
)
async def test_a_reference_that_leads_nowhere(client: httpx.AsyncClient, reference: dict[str, str], status: int) -> None:
    answer = await client.post(PATH, json={"prompt": "x", "input_reference": reference})
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"].startswith("input_reference")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://[::1", "http://127.0.0.1/here"])
async def test_a_webhook_that_may_not_be_called_is_named(client: httpx.AsyncClient, url: str) -> None:
    error = (await client.post("/v1/videos", json={"prompt": "a red disc", "webhook_url": url})).json()["error"]
    assert (error["code"], error["param"]) == ("invalid_webhook_url", "webhook_url")


async def test_a_failed_clip_is_a_good_answer(client: httpx.AsyncClient) -> None:
    video = await ended(client, f"{PATH}/{(await ordered(client, prompt='refuse'))['id']}")
    assert (video["status"], video["error"]["code"]) == ("failed", "invalid_request")
    content = await client.get(f"{PATH}/{video['id']}/content")
    assert (content.status_code, content.json()["error"]["code"]) == (409, "job_failed")


async def test_a_running_clip_tells_its_progress_and_is_cancelled_by_deleting_it(slow_media: Callable[..., Any]) -> None:
    async with slow_media() as server, client_of(server) as client:
        path = f"{PATH}/{(await ordered(client, num_inference_steps=400))['id']}"
        async with asyncio.timeout(10):
            while (answer := await client.get(path)).json()["progress"] < 5:
                assert 250 <= int(answer.headers["openai-poll-after-ms"]) <= 2000
                await asyncio.sleep(0.05)
        assert answer.json()["status"] == "in_progress"
        content = await client.get(f"{path}/content")
        assert (content.status_code, content.json()["error"]["code"]) == (409, "job_not_completed")
        preview = await client.get(f"{path}/content?variant=preview")
        assert preview.status_code in (200, 404)
        assert (await client.delete(path)).json()["object"] == "video.deleted"
        await eventually(lambda: painter_of(server).running == 0)
        assert (await client.get(path)).status_code == 404
        assert (await client.delete(path)).status_code == 404


async def test_a_remix_has_the_seed_and_another_prompt(client: httpx.AsyncClient, media: RunningServer) -> None:
    source = await completed(client, seconds="1", size="1280x720")
    answer = await client.post(f"{PATH}/{source['id']}/remix", json={"prompt": "a blue disc"})
    assert answer.status_code == 200, answer.text
    remix = await ended(client, f"{PATH}/{answer.json()['id']}")
    assert (remix["remixed_from_video_id"], remix["prompt"], remix["size"]) == (source["id"], "a blue disc", "1280x720")
    first, second = painter_of(media).bodies
    assert (first.seed, first.prompt, second.prompt) == (second.seed, "a red disc", "a blue disc")
    assert (await client.post(f"{PATH}/video_none/remix", json={"prompt": "x"})).status_code == 404
    assert (await client.post(f"{PATH}/{source['id']}/remix", json={})).status_code == 400
    failed = await ended(client, f"{PATH}/{(await ordered(client, prompt='refuse'))['id']}")
    assert (await client.post(f"{PATH}/{failed['id']}/remix", json={"prompt": "x"})).status_code == 409


async def test_pages_of_a_list(client: httpx.AsyncClient) -> None:
    ids = [(await completed(client, num_frames=1))["id"] for _ in range(5)]
    first = (await client.get(PATH, params={"limit": 2})).json()
    assert [one["id"] for one in first["data"]] == [ids[4], ids[3]]
    assert (first["has_more"], first["first_id"], first["last_id"]) == (True, ids[4], ids[3])
    rest = (await client.get(PATH, params={"after": first["last_id"]})).json()
    assert ([one["id"] for one in rest["data"]], rest["has_more"]) == ([ids[2], ids[1], ids[0]], False)
    oldest = (await client.get(PATH, params={"order": "asc", "limit": 1})).json()
    assert oldest["data"][0]["id"] == ids[0]
    for bad, status in (
        ({"limit": 0}, 400),
        ({"limit": 101}, 400),
        ({"order": "up"}, 400),
        ({"after": "video_none"}, 404),
        ({"after": "\x00"}, 404),
    ):
        assert (await client.get(PATH, params=bad)).status_code == status, bad


async def test_the_same_order_twice_is_one_job(client: httpx.AsyncClient) -> None:
    headers = {"idempotency-key": "k1"}
    first, again = [(await client.post(PATH, json={"prompt": "x", "num_frames": 1}, headers=headers)).json() for _ in range(2)]
    assert first["id"] == again["id"]
    other = await client.post(PATH, json={"prompt": "y", "num_frames": 1}, headers=headers)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_reused")
    assert (await client.post(PATH, json={"prompt": "x"}, headers={"idempotency-key": "x" * 256})).status_code == 400


async def test_the_same_order_with_a_picture_twice_is_one_job(client: httpx.AsyncClient) -> None:
    answers = []
    for colour in ("red", "red", "blue"):
        files = {"input_reference": ("a.png", picture(colour=colour))}
        answers.append(await client.post(PATH, data={"prompt": "x"}, files=files, headers={"idempotency-key": "k2"}))
    assert [answer.status_code for answer in answers] == [200, 200, 409]
    assert answers[0].json()["id"] == answers[1].json()["id"]


async def test_a_key_sees_its_own_jobs_alone(slow_media: Callable[..., Any]) -> None:
    async with (
        slow_media(server={"api_keys": ("sk-one", "sk-two")}) as server,
        client_of(server, "sk-one") as one,
        client_of(server, "sk-two") as two,
    ):
        path = f"{PATH}/{(await ordered(one, num_inference_steps=400))['id']}"
        upload = (await one.post("/v1/files", data={"purpose": "vision"}, files={"file": ("a.png", picture())})).json()
        for method, where in (
            ("GET", path),
            ("DELETE", path),
            ("GET", f"{path}/content"),
            ("GET", f"{path}/content?variant=preview"),
            ("GET", f"/v1/files/{upload['id']}"),
            ("GET", f"/v1/files/{upload['id']}/content"),
            ("DELETE", f"/v1/files/{upload['id']}"),
        ):
            assert (await two.request(method, where)).status_code == 404, (method, where)
        assert (await two.post(f"{path}/remix", json={"prompt": "x"})).status_code == 404
        assert (await two.post(PATH, json={"prompt": "x", "input_reference": {"file_id": upload["id"]}})).status_code == 404
        assert (await two.get(PATH)).json()["data"] == []
        assert (await two.get(PATH, params={"after": path.rpartition("/")[2]})).status_code == 404
        assert (await one.get(path)).status_code == 200
        assert (await one.delete(path)).status_code == 200


async def test_too_many_unfinished_jobs(slow_media: Callable[..., Any]) -> None:
    async with slow_media(jobs={"max_active": 2}) as server, client_of(server) as client:
        videos = [await ordered(client, num_inference_steps=400) for _ in range(2)]
        answer = await client.post(PATH, json={"prompt": "x"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "job_limit_reached")
        assert int(answer.headers["retry-after"]) >= 1
        await client.delete(f"{PATH}/{videos[0]['id']}")
        assert (await client.post(PATH, json={"prompt": "x"})).status_code == 200
        for video in (await client.get(PATH)).json()["data"]:
            await client.delete(f"{PATH}/{video['id']}")


async def test_a_clip_that_is_waited_for(client: httpx.AsyncClient) -> None:
    answer = await client.post(f"{PATH}/sync", json={"prompt": "a red disc", "seconds": "1", "seed": 4})
    assert (answer.status_code, answer.headers["content-type"], answer.headers["x-seed"]) == (200, "video/mp4", "4")
    assert measured(answer.content)[1] == 8
    video = (await client.get(f"{PATH}/{answer.headers['x-video-id']}")).json()
    assert video["status"] == "completed"
    answer = await client.post(f"{PATH}/sync", json={"prompt": "refuse"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


async def test_a_client_that_leaves_cancels_the_clip_that_it_waited_for(slow_media: Callable[..., Any]) -> None:
    async with slow_media() as server, client_of(server) as client:
        asking = asyncio.create_task(client.post(f"{PATH}/sync", json={"prompt": "x", "num_inference_steps": 400}))
        await eventually(lambda: painter_of(server).running == 1)
        asking.cancel()
        await asyncio.wait([asking])
        await eventually(lambda: painter_of(server).running == 0)
        (video,) = (await client.get(PATH)).json()["data"]
        assert (await ended(client, f"{PATH}/{video['id']}"))["error"]["code"] == "cancelled"


@pytest.mark.parametrize("what", ["edits", "extensions", "characters"])
async def test_what_no_model_can_says_so(client: httpx.AsyncClient, what: str) -> None:
    answer = await client.post(f"{PATH}/{what}", data={"prompt": "x"}, files={"video": ("a.mp4", b"x")})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "not_supported")


async def test_models_and_what_they_can(client: httpx.AsyncClient, slow_media: Callable[..., Any]) -> None:
    models = {one["id"]: one for one in (await client.get("/v1/models")).json()["data"]}
    assert {"painter", "painter-1", "tone"} <= set(models)
    media = models["painter-1"]["media"]
    assert (media["pictures"], media["clips"], media["picture_sizes"][:2]) == (True, True, ["64x64", "96x64"])
    assert (await client.get("/v1/models/painter-1")).json() == models["painter-1"]
    assert (await ordered(client, model="sora-2", num_frames=1))["model"] == "sora-2"


async def test_an_engine_without_clips(slow_media: Callable[..., Any]) -> None:
    async with slow_media(engine={"clips": False}, models={"strict": True}) as server, client_of(server) as client:
        for model in ("painter", "sora-2", ""):
            answer = await client.post(PATH, json={"prompt": "x", "model": model})
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
        assert (await client.post("/v1/images/generations", json={"prompt": "x", "model": "painter"})).status_code == 200
        answer = await client.post("/v1/images/generations", json={"prompt": "x", "model": "gpt-image-1"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (404, "model")


async def test_a_server_without_media_says_what_to_do(server: RunningServer) -> None:
    async with client_of(server) as client:
        for method, path in (
            ("POST", PATH),
            ("GET", PATH),
            ("POST", "/v1/images/generations"),
            ("GET", "/v1/files"),
            ("GET", "/v1/batches"),
        ):
            answer = await client.request(method, path, json={"prompt": "x"} if method == "POST" else None)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
            assert "server.media" in answer.json()["error"]["message"]
