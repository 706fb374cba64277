"""Pictures and clips with the stock `openai` client, against a real server with a real queue and a small real engine."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import av
import httpx
import openai
import pytest
from antiphon.scenarios.server import Server
from antiphon.tests.gateway.conftest import RunningServer, eventually
from antiphon.tests.gateway.media.conftest import media_server, painter_of
from openai import AsyncOpenAI
from PIL import Image

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the client says so of every call about videos


@pytest.fixture
async def media(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningServer]:
    monkeypatch.chdir(tmp_path)
    async with media_server(tmp_path, engine={"step_s": 0.02}) as running:
        yield running


@pytest.fixture
async def client(media: RunningServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key="unused", base_url=f"{media.url}/v1", max_retries=0) as found:
        yield found


def image_of(text: str | None) -> Image.Image:
    assert text is not None
    return Image.open(io.BytesIO(base64.b64decode(text)))


def png(colour: str = "blue") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (50, 40), colour).save(file, "PNG")
    return file.getvalue()


async def until(reached: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it is so."""
    async with asyncio.timeout(20):
        while not await reached():  # noqa: ASYNC110 - the server is asked
            await asyncio.sleep(0.05)


# ---- videos ---------------------------------------------------------------------------------------------------------


async def test_create_and_poll_with_defaults_and_every_file(client: AsyncOpenAI) -> None:
    video = await client.videos.create_and_poll(prompt="a red disc moving left")
    assert (video.status, video.progress, video.seconds, video.error) == ("completed", 100, "4", None)
    assert video.completed_at is not None
    assert video.expires_at is not None
    content = await client.videos.download_content(video.id)
    with av.open(io.BytesIO(content.content)) as container:
        stream = container.streams.video[0]
        assert f"{stream.width}x{stream.height}" == video.size
        assert float(container.duration or 0) / 1e6 == pytest.approx(4, abs=0.05)
    thumbnail = await client.videos.download_content(video.id, variant="thumbnail")
    assert Image.open(io.BytesIO(thumbnail.content)).format == "WEBP"
    sheet = await client.videos.download_content(video.id, variant="spritesheet")
    assert Image.open(io.BytesIO(sheet.content)).format == "JPEG"


async def test_a_clip_as_openai_sells_it(client: AsyncOpenAI) -> None:
    video = await client.videos.create_and_poll(prompt="a red disc", model="sora-2", seconds="4", size="1280x720")
    assert (video.status, video.model, video.seconds, video.size) == ("completed", "sora-2", "4", "1280x720")
    content = await client.videos.download_content(video.id)
    with av.open(io.BytesIO(content.content)) as container:
        assert (container.streams.video[0].width, container.streams.video[0].height) == (1280, 720)


async def test_a_failed_clip_is_polled_to_its_end(client: AsyncOpenAI) -> None:
    video = await client.videos.create_and_poll(prompt="refuse")
    assert video.status == "failed"
    assert video.error is not None
    assert (video.error.code, video.error.message) == ("invalid_request", "the painter refuses")
    with pytest.raises(openai.ConflictError):
        await client.videos.download_content(video.id)


async def test_a_clip_from_a_picture_in_a_file_and_in_an_upload(client: AsyncOpenAI, media: RunningServer) -> None:
    video = await client.videos.create(prompt="a red disc", input_reference=("a.png", png()), seconds="4")
    assert (await client.videos.poll(video.id, poll_interval_ms=50)).status == "completed"
    file = await client.files.create(file=("a.png", png()), purpose="vision")
    video = await client.videos.create(prompt="a red disc", extra_body={"input_reference": {"file_id": file.id}})
    assert (await client.videos.poll(video.id, poll_interval_ms=50)).status == "completed"
    assert all(body.image is not None for body in painter_of(media).bodies)


async def test_lists_page_by_themselves(client: AsyncOpenAI) -> None:
    made = [(await client.videos.create(prompt="a red disc", extra_body={"num_frames": 1})).id for _ in range(5)]
    found = [video.id async for video in client.videos.list(limit=2)]
    assert found == made[::-1]
    assert [video.id async for video in client.videos.list(limit=2, order="asc", after=made[0])] == made[1:]


async def test_a_remix(client: AsyncOpenAI, media: RunningServer) -> None:
    source = await client.videos.create_and_poll(prompt="a red disc", extra_body={"num_frames": 4})
    remix = await client.videos.remix(source.id, prompt="a blue disc")
    assert (remix.remixed_from_video_id, remix.prompt, remix.status) == (source.id, "a blue disc", "queued")
    assert (await client.videos.poll(remix.id, poll_interval_ms=50)).status == "completed"
    first, second = painter_of(media).bodies
    assert first.seed == second.seed


async def test_a_clip_is_deleted_while_it_is_made(client: AsyncOpenAI, media: RunningServer) -> None:
    video = await client.videos.create(prompt="a red disc", extra_body={"num_inference_steps": 400})

    async def begun() -> bool:
        return (await client.videos.retrieve(video.id)).progress > 0

    await until(begun)
    deleted = await client.videos.delete(video.id)
    assert (deleted.id, deleted.deleted, deleted.object) == (video.id, True, "video.deleted")
    with pytest.raises(openai.NotFoundError):
        await client.videos.retrieve(video.id)
    await eventually(lambda: painter_of(media).running == 0)


async def test_the_rest_of_the_videos_api_says_what_it_cannot(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        await client.videos.edit(prompt="x", video=("a.mp4", b"x"))
    assert refusal.value.code == "not_supported"
    with pytest.raises(openai.BadRequestError):
        await client.videos.extend(prompt="x", seconds="4", video=("a.mp4", b"x"))
    with pytest.raises(openai.BadRequestError):
        await client.videos.create_character(name="x", video=("a.mp4", b"x"))


async def test_an_error_names_the_parameter(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        await client.videos.create(prompt="x", size="123x456")  # type: ignore[arg-type]
    assert (refusal.value.param, refusal.value.code) == ("size", "invalid_value")
    assert "64x64" in refusal.value.message


async def test_idempotency(client: AsyncOpenAI) -> None:
    headers = {"Idempotency-Key": "order-1"}
    first = await client.videos.create(prompt="a red disc", extra_headers=headers)
    assert (await client.videos.create(prompt="a red disc", extra_headers=headers)).id == first.id
    with pytest.raises(openai.ConflictError) as refusal:
        await client.with_options(max_retries=3).videos.create(prompt="another", extra_headers=headers)
    assert refusal.value.code == "idempotency_key_reused"
    assert [video.id async for video in client.videos.list()] == [first.id]


async def test_too_many_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with (
        media_server(tmp_path, engine={"step_s": 0.02}, jobs={"max_active": 1}) as media,
        AsyncOpenAI(api_key="unused", base_url=f"{media.url}/v1", max_retries=0) as client,
    ):
        await client.videos.create(prompt="a red disc", extra_body={"num_inference_steps": 400})
        with pytest.raises(openai.RateLimitError) as refusal:
            await client.videos.create(prompt="another")
        assert int(refusal.value.response.headers["retry-after"]) >= 1


# ---- images ---------------------------------------------------------------------------------------------------------


async def test_a_picture(client: AsyncOpenAI) -> None:
    answer = await client.images.generate(prompt="a red disc")
    assert answer.data is not None
    assert image_of(answer.data[0].b64_json).size == (64, 64)
    assert answer.usage is not None
    assert answer.usage.total_tokens > 0
    assert (answer.background, answer.output_format, answer.size) == ("opaque", "png", "64x64")


@pytest.mark.parametrize(("kind", "size"), [("png", "auto"), ("webp", "1024x1024"), ("jpeg", "1536x1024")])
async def test_several_pictures_in_a_format(client: AsyncOpenAI, kind: Any, size: Any) -> None:
    answer = await client.images.generate(
        prompt="a red disc", model="gpt-image-1", n=3, size=size, output_format=kind, quality="low", user="u", moderation="low"
    )
    assert answer.data is not None
    images = [image_of(one.b64_json) for one in answer.data]
    assert len(images) == 3
    assert {image.format for image in images} == {kind.upper()}
    assert {f"{image.width}x{image.height}" for image in images} == {answer.size}
    assert size in ("auto", answer.size)


async def test_a_picture_by_url(client: AsyncOpenAI) -> None:
    answer = await client.images.generate(prompt="a red disc", model="dall-e-3", response_format="url", style="vivid", quality="hd")
    assert answer.data is not None
    assert answer.data[0].revised_prompt == "a red disc"
    async with httpx.AsyncClient(trust_env=False) as anyone:
        fetched = await anyone.get(str(answer.data[0].url))
    assert Image.open(io.BytesIO(fetched.content)).size == (64, 64)


async def test_partial_pictures_by_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with (
        media_server(tmp_path, engine={"step_s": 0.15}) as media,
        AsyncOpenAI(api_key="unused", base_url=f"{media.url}/v1") as client,
    ):
        stream = await client.images.generate(
            prompt="a red disc", stream=True, partial_images=2, output_format="webp", extra_body={"num_inference_steps": 9}
        )
        events = [event async for event in stream]
    assert events[-1].type == "image_generation.completed"
    assert events[-1].usage.total_tokens > 0
    assert image_of(events[-1].b64_json).size == (64, 64)
    partial = [event for event in events if event.type == "image_generation.partial_image"]
    assert 1 <= len(partial) <= 2
    assert len(partial) == len(events) - 1
    assert image_of(partial[0].b64_json).format == "WEBP"
    assert partial[0].partial_image_index == 0


async def test_a_stream_that_fails(client: AsyncOpenAI) -> None:
    stream = await client.images.generate(prompt="refuse", stream=True)
    with pytest.raises(openai.APIError, match="the painter refuses"):
        _ = [event async for event in stream]


async def test_an_edit(client: AsyncOpenAI) -> None:
    answer = await client.images.edit(image=("a.png", png()), prompt="a red disc", mask=("m.png", png("white")), n=2)
    assert answer.data is not None
    assert [image_of(one.b64_json).size for one in answer.data] == [(64, 64), (64, 64)]
    answer = await client.images.edit(image=[("a.png", png())], prompt="a red disc", size="1024x1024", output_format="jpeg")
    assert answer.data is not None
    assert image_of(answer.data[0].b64_json).size == (1024, 1024)
    events = [event async for event in await client.images.edit(image=("a.png", png()), prompt="a red disc", stream=True)]
    assert events[-1].type == "image_edit.completed"


async def test_what_pictures_cannot_be(client: AsyncOpenAI) -> None:
    for wrong, param in (({"background": "transparent"}, "background"), ({"size": "100x100"}, "size"), ({"n": 11}, "n")):
        with pytest.raises(openai.BadRequestError) as refusal:
            await client.images.generate(prompt="x", **wrong)  # type: ignore[call-overload]
        assert refusal.value.param == param
    with pytest.raises(openai.BadRequestError):
        await client.images.create_variation(image=("a.png", png()))


# ---- batches and files ----------------------------------------------------------------------------------------------


async def test_a_batch_there_and_back(client: AsyncOpenAI) -> None:
    bodies: list[dict[str, Any]] = [{"prompt": "a red disc", "seed": 5}, {"prompt": "x", "size": "1x1"}, {"prompt": "a blue disc"}]
    lines = [
        {"custom_id": f"line-{number}", "method": "POST", "url": "/v1/images/generations", "body": body}
        for number, body in enumerate(bodies)
    ]
    data = "\n".join(json.dumps(one) for one in lines).encode()
    file = await client.files.create(file=("in.jsonl", data), purpose="batch")
    assert (await client.files.retrieve(file.id)).bytes == len(data)
    assert (await client.files.content(file.id)).content == data
    batch = await client.batches.create(
        input_file_id=file.id, endpoint="/v1/images/generations", completion_window="24h", metadata={"for": "us"}
    )

    async def ended() -> bool:
        return (await client.batches.retrieve(batch.id)).status not in ("validating", "in_progress")

    await until(ended)
    batch = await client.batches.retrieve(batch.id)
    assert (batch.status, batch.metadata, batch.errors) == ("completed", {"for": "us"}, None)
    assert batch.request_counts is not None
    assert batch.request_counts.model_dump() == {"total": 3, "completed": 2, "failed": 1}
    assert batch.output_file_id is not None
    assert batch.error_file_id is not None
    output = [json.loads(text) for text in (await client.files.content(batch.output_file_id)).text.splitlines()]
    assert [one["custom_id"] for one in output] == ["line-0", "line-2"]
    alone = await client.images.generate(prompt="a red disc", extra_body={"seed": 5})
    assert alone.data is not None
    assert output[0]["response"]["body"]["data"][0]["b64_json"] == alone.data[0].b64_json
    (error,) = [json.loads(text) for text in (await client.files.content(batch.error_file_id)).text.splitlines()]
    assert (error["custom_id"], error["response"]["body"]["error"]["param"]) == ("line-1", "size")
    assert [one.id async for one in client.batches.list(limit=1)] == [batch.id]
    assert (await client.files.delete(file.id)).deleted
    assert [one.id async for one in client.files.list()] == []


async def test_a_batch_is_cancelled(client: AsyncOpenAI, media: RunningServer) -> None:
    one = {"custom_id": "a", "method": "POST", "url": "/v1/images/generations", "body": {"prompt": "x", "num_inference_steps": 400}}
    file = await client.files.create(file=("in.jsonl", json.dumps(one).encode()), purpose="batch")
    batch = await client.batches.create(input_file_id=file.id, endpoint="/v1/images/generations", completion_window="24h")
    await eventually(lambda: painter_of(media).running == 1)
    assert (await client.batches.cancel(batch.id)).status in ("cancelling", "cancelled")

    async def cancelled() -> bool:
        return (await client.batches.retrieve(batch.id)).status == "cancelled"

    await until(cancelled)
    assert painter_of(media).running == 0


# ---- the model that ships -------------------------------------------------------------------------------------------


async def test_the_model_that_ships(tmp_path: Path) -> None:
    """`antiphon serve` as a user starts it, with the engine in its own process."""
    config = tmp_path / "antiphon.toml"
    config.write_text(f'[server]\npipelines = ["tone"]\nmedia = ["tinyflow"]\n[jobs]\nfolder = "{tmp_path / "jobs"}"\n')
    async with Server(log=tmp_path / "server.log", options=("--config", str(config))) as server:
        client = AsyncOpenAI(api_key="unused", base_url=f"{server.url}/v1", timeout=240)
        answer = await client.images.generate(prompt="a large red circle on a white unicorn", size="1024x1024")
        assert answer.data is not None
        assert image_of(answer.data[0].b64_json).size == (1024, 1024)
        assert any("unicorn" in warning for warning in answer.warnings)  # type: ignore[attr-defined]
        assert "red circle" in str(answer.data[0].revised_prompt)
        video = await client.videos.create_and_poll(prompt="a large red circle moving left", extra_body={"num_frames": 4})
        assert (video.status, video.seconds) == ("completed", "0.5")
        content = await client.videos.download_content(video.id)
        with av.open(io.BytesIO(content.content)) as container:
            assert sum(1 for _ in container.decode(container.streams.video[0])) == 4
