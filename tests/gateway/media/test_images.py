"""`/v1/images` on a real server with a real queue."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from antiphon.tests.gateway.conftest import RunningServer, eventually
from antiphon.tests.gateway.media.conftest import client_of, ended, painter_of
from PIL import Image

PATH = "/v1/images/generations"
ASYNC = {"prefer": "respond-async"}


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def picture(width: int = 40, height: int = 30, colour: str = "red", kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(file, kind)
    return file.getvalue()


async def test_a_picture_in_the_answer(client: httpx.AsyncClient) -> None:
    answer = await client.post(PATH, json={"prompt": "a red disc", "seed": 3})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    (made,) = body["data"]
    image = opened(base64.b64decode(made["b64_json"]))
    assert (image.format, image.size) == ("PNG", (64, 64))
    assert made["revised_prompt"] == "a red disc"
    assert (body["size"], body["output_format"], body["quality"], body["background"]) == ("64x64", "png", "medium", "opaque")
    assert body["usage"]["total_tokens"] == body["usage"]["input_tokens"] + body["usage"]["output_tokens"]
    assert body["warnings"] == []
    again = await client.post(PATH, json={"prompt": "a red disc", "seed": 3})
    assert again.json()["data"] == body["data"]


@pytest.mark.parametrize(("kind", "size"), [("png", "1024x1024"), ("webp", "1536x1024"), ("jpeg", "1024x1792")])
async def test_the_file_has_the_size_and_format_that_were_asked_for(client: httpx.AsyncClient, kind: str, size: str) -> None:
    answer = await client.post(PATH, json={"prompt": "a red disc", "n": 2, "size": size, "output_format": kind, "output_compression": 70})
    assert answer.status_code == 200, answer.text
    images = [opened(base64.b64decode(made["b64_json"])) for made in answer.json()["data"]]
    assert [f"{image.width}x{image.height}" for image in images] == [size, size]
    assert {image.format for image in images} == {kind.upper()}
    assert images[0].tobytes() != images[1].tobytes()


async def test_what_the_model_does_not_know_is_a_warning(client: httpx.AsyncClient) -> None:
    body = (await client.post(PATH, json={"prompt": "a red unicorn", "sampler": "x"})).json()
    assert any("unicorn" in warning for warning in body["warnings"])
    assert any("sampler" in warning for warning in body["warnings"])


async def test_a_picture_by_url_needs_no_key(slow_media: Callable[..., Any]) -> None:
    async with (
        slow_media(server={"api_keys": ("sk-one", "sk-two")}) as server,
        client_of(server, "sk-one") as client,
        client_of(server) as anyone,
    ):
        body = (await client.post(PATH, json={"prompt": "a red disc", "response_format": "url"})).json()
        url = body["data"][0]["url"]
        assert "b64_json" not in body["data"][0]
        answer = await anyone.get(url)
        assert (answer.status_code, opened(answer.content).size) == (200, (64, 64))
        assert (await anyone.head(url)).headers["content-length"] == str(len(answer.content))
        assert (await anyone.get(url, headers={"range": "bytes=0-7"})).content == b"\x89PNG\r\n\x1a\n"
        assert (await anyone.get(url[:-1])).status_code == 404
        assert (await anyone.get(url.replace("/content/", "/content/x"))).status_code == 404
        assert (await anyone.get("/v1/images")).status_code == 401


async def test_a_stream_shows_the_picture_as_it_emerges(slow_media: Callable[..., Any]) -> None:
    async with slow_media(engine={"step_s": 0.15}) as server, client_of(server) as client:
        body = {
            "prompt": "a red disc",
            "stream": True,
            "partial_images": 2,
            "num_inference_steps": 9,
            "output_format": "jpeg",
            "size": "256x256",
        }
        async with client.stream("POST", PATH, json=body) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            text = (await answer.aread()).decode()
    events = [json.loads(block.split("data: ", 1)[1]) for block in text.strip().split("\n\n")]
    kinds = [event["type"] for event in events]
    assert kinds[-1] == "image_generation.completed"
    assert kinds[:-1] == ["image_generation.partial_image"] * (len(kinds) - 1)
    assert 1 <= len(kinds) - 1 <= 2
    assert [event["partial_image_index"] for event in events[:-1]] == list(range(len(kinds) - 1))
    for event in events:
        image = opened(base64.b64decode(event["b64_json"]))
        assert (image.format, image.size) == ("JPEG", (256, 256))
    assert events[-1]["usage"]["output_tokens"] == 9


async def test_a_stream_that_fails_says_why(client: httpx.AsyncClient) -> None:
    answer = await client.post(PATH, json={"prompt": "refuse", "stream": True})
    assert answer.status_code == 200
    event = json.loads(answer.text.split("data: ", 1)[1])
    assert (event["type"], event["error"]["code"]) == ("error", "invalid_request")


async def test_a_refusal_of_the_model_is_a_400(client: httpx.AsyncClient) -> None:
    answer = await client.post(PATH, json={"prompt": "refuse"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_cancels_its_picture(slow_media: Callable[..., Any], stream: bool) -> None:
    async with slow_media() as server, client_of(server) as client:
        painter = painter_of(server)
        body = {"prompt": "a red disc", "num_inference_steps": 400, "stream": stream}
        asking = asyncio.create_task(client.post(PATH, json=body))
        await eventually(lambda: painter.running == 1)
        asking.cancel()
        await asyncio.wait([asking])
        await eventually(lambda: painter.aborted == 1 and painter.running == 0)
        (job,) = (await client.get("/v1/images")).json()["data"]
        job = await ended(client, f"/v1/images/{job['id']}")
        assert (job["status"], job["error"]["code"]) == ("failed", "cancelled")


async def test_with_an_idempotency_key_the_picture_waits_for_its_client(slow_media: Callable[..., Any]) -> None:
    async with slow_media() as server, client_of(server) as client:
        painter = painter_of(server)
        body, headers = {"prompt": "a red disc", "num_inference_steps": 30}, {"idempotency-key": "once"}
        asking = asyncio.create_task(client.post(PATH, json=body, headers=headers))
        await eventually(lambda: painter.running == 1)
        asking.cancel()
        await asyncio.wait([asking])
        answer = await client.post(PATH, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        assert (len(painter.bodies), painter.aborted) == (1, 0)
        other = await client.post(PATH, json={**body, "prompt": "a blue disc"}, headers=headers)
        assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_reused")
        assert other.headers["x-should-retry"] == "false"


async def test_a_call_that_takes_too_long_is_cancelled(slow_media: Callable[..., Any]) -> None:
    async with slow_media(jobs={"sync_s": 0.5}) as server, client_of(server) as client:
        answer = await client.post(PATH, json={"prompt": "a red disc", "num_inference_steps": 400})
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "job_timeout")
        await eventually(lambda: painter_of(server).running == 0)


async def test_a_job_of_pictures_is_asked_for_later(client: httpx.AsyncClient) -> None:
    answer = await client.post(PATH, json={"prompt": "a red disc", "n": 2, "partial_images": 3}, headers=ASYNC)
    assert (answer.status_code, answer.headers["preference-applied"]) == (202, "respond-async")
    path = f"/v1/images/{answer.json()['id']}"
    job = await ended(client, path)
    assert (job["status"], job["n"], job["progress"]) == ("completed", 2, 100)
    for index in (0, 1):
        content = await client.get(f"{path}/content", params={"index": index})
        assert (content.status_code, opened(content.content).size) == (200, (64, 64))
    assert (await client.get(f"{path}/content?index=2")).status_code == 404
    assert [one["id"] for one in (await client.get("/v1/images")).json()["data"]] == [job["id"]]
    assert (await client.delete(path)).json() == {"id": job["id"], "object": "image.deleted", "deleted": True}
    assert (await client.get(path)).status_code == 404


async def test_a_preview_of_what_is_being_made(slow_media: Callable[..., Any]) -> None:
    async with slow_media() as server, client_of(server) as client:
        body = {"prompt": "a red disc", "num_inference_steps": 400, "partial_images": 3, "size": "1536x1024"}
        path = f"/v1/images/{(await client.post(PATH, json=body, headers=ASYNC)).json()['id']}"
        assert (await client.get(f"{path}/content")).status_code == 409
        async with asyncio.timeout(10):
            while (preview := await client.get(f"{path}/content?variant=preview")).status_code != 200:
                assert preview.json()["error"]["code"] == "no_preview"
                await asyncio.sleep(0.05)
        assert opened(preview.content).format == "WEBP"
        job = (await client.get(path)).json()
        assert 0 < job["progress"] < 100
        assert (await client.delete(path)).status_code == 200
        await eventually(lambda: painter_of(server).running == 0)


# ---- edits ----------------------------------------------------------------------------------------------------------


async def test_an_edit_starts_from_the_picture(client: httpx.AsyncClient, media: RunningServer) -> None:
    mask = Image.new("RGBA", (64, 64), (0, 0, 0, 255))
    file = io.BytesIO()
    mask.save(file, "PNG")
    files = {"image": ("in.png", picture(64, 64, "blue")), "mask": ("mask.png", file.getvalue())}
    answer = await client.post("/v1/images/edits", data={"prompt": "a red disc", "seed": "1"}, files=files)
    assert answer.status_code == 200, answer.text
    image = opened(base64.b64decode(answer.json()["data"][0]["b64_json"])).convert("RGB")
    assert image.getcolors() == [(64 * 64, (0, 0, 255))]  # everything is masked
    answer = await client.post(
        "/v1/images/edits", data={"prompt": "a red disc"}, files={"image[]": ("in.webp", picture(30, 20, "blue", "WEBP"))}
    )
    assert answer.status_code == 200, answer.text
    assert painter_of(media).bodies[-1].image is not None


@pytest.mark.parametrize(
    ("files", "param", "code"),
    [
        ({}, "image", "missing_required_parameter"),
        ({"image": ("x.png", b"no picture")}, "image", "invalid_image"),
        ({"image": ("x.png", picture()[:60])}, "image", "invalid_image"),
        ({"image": ("x.svg", b"<svg/>")}, "image", "invalid_image"),
        ({"image": ("x.png", picture()), "mask": ("m.png", b"")}, "mask", "invalid_image"),
        ([("image[]", ("a.png", picture())), ("image[]", ("b.png", picture()))], "image", "not_supported"),
        ([("image", ("a.png", picture())), ("mask", ("b.png", picture())), ("mask", ("c.png", picture()))], "mask", "invalid_value"),
    ],
)
async def test_an_edit_of_nothing_or_of_garbage(client: httpx.AsyncClient, files: Any, param: str, code: str) -> None:
    answer = await client.post("/v1/images/edits", data={"prompt": "x"}, files=files)
    assert (answer.status_code, answer.json()["error"]["param"], answer.json()["error"]["code"]) == (400, param, code)


async def test_a_picture_that_would_fill_the_memory_is_not_unpacked(client: httpx.AsyncClient) -> None:
    bomb = bytearray(picture(8, 8))
    bomb[16:24] = (60_000).to_bytes(4, "big") * 2  # the header promises 60000 x 60000 pixels
    answer = await client.post("/v1/images/edits", data={"prompt": "x"}, files={"image": ("bomb.png", bytes(bomb))})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_image")


async def test_an_engine_without_edits_says_so(slow_media: Callable[..., Any]) -> None:
    async with slow_media(engine={"edits": False}) as server, client_of(server) as client:
        answer = await client.post("/v1/images/edits", data={"prompt": "x"}, files={"image": ("a.png", picture())})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "not_supported")


async def test_variations_are_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/images/variations", files={"image": ("a.png", picture())})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "not_supported")
