"""What the kinds of job make, on a real pool: files that open, results that say what was made, previews, faults."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import time
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from antiphon.gateway.jobs.artifacts import job_prefix, work_key
from antiphon.gateway.jobs.job import JobStatus
from antiphon.tests.gateway.jobs.service_kit import TENANT, Service, batch, clip, eventually, picture, service
from PIL import Image


def opened(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


async def test_a_picture(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        job = await running.make(picture())
        assert job.status is JobStatus.COMPLETED, job.fault
        assert [artifact.name for artifact in job.artifacts] == ["image-0.png"]
        image = opened(await running.file(job, "image-0.png"))
        assert (image.format, image.size) == ("PNG", (64, 64))
        assert (job.result["seed"], job.result["seeds"], job.result["size"]) == (7, [7], "64x64")
        assert job.result["warnings"] == []


async def test_several_pictures_are_drawn_side_by_side_and_each_is_the_one_of_its_seed(tmp_path: Path) -> None:
    async with service(tmp_path, step_s=0.01, slots=1) as running:
        submitted = await running.jobs.submit(picture(n=4, seed=20))
        most = 0
        async for _ in running.jobs.watch(TENANT, submitted.id, deadline=time.monotonic() + 20):
            most = max(most, running.painter.running)
        job = await running.done(submitted)
        assert job.result["seeds"] == [20, 21, 22, 23]
        assert most > 1, "one slot, yet its pictures run together"
        third = await running.file(job, "image-2.png")
        alone = await running.make(picture(seed=22))
        assert await running.file(alone, "image-0.png") == third


async def test_more_pictures_than_the_engine_takes_at_once_wait_for_each_other(tmp_path: Path) -> None:
    async with service(tmp_path, step_s=0.01, slots=4, most=4, max_attempts=1) as running:
        submitted = [await running.jobs.submit(picture(n=10, seed=seed)) for seed in (0, 50, 100, 150)]
        jobs = [await running.done(job) for job in submitted]
        assert [(job.status, job.attempt) for job in jobs] == [(JobStatus.COMPLETED, 1)] * 4, [job.fault for job in jobs]
        assert jobs[2].result["seeds"] == list(range(100, 110))


@pytest.mark.parametrize(("kind", "quality", "exact"), [("webp", 60, False), ("jpeg", 80, False), ("png", 1, True)])
async def test_picture_formats(tmp_path: Path, kind: str, quality: int, exact: bool) -> None:
    async with service(tmp_path) as running:
        job = await running.make(picture(output={"format": kind, "quality": quality}))
        image = opened(await running.file(job, f"image-0.{kind}"))
        assert image.format == kind.upper()
        truth = opened(await running.file(await running.make(picture()), "image-0.png"))
        difference = np.abs(np.asarray(image.convert("RGB"), int) - np.asarray(truth.convert("RGB"), int))
        assert difference.max() == 0 if exact else difference.mean() < 12


async def test_another_size_is_fitted_in_the_middle_with_the_colour_of_the_border(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        job = await running.make(picture(output={"width": 160, "height": 96}, size="160x96"))
        wide = np.asarray(opened(await running.file(job, "image-0.png")).convert("RGB"))
        own = np.asarray(opened(await running.file(await running.make(picture()), "image-0.png")).convert("RGB"))
        assert wide.shape == (96, 160, 3)
        assert (wide[:, :32] == own[0, 0]).all()
        assert (wide[:, -32:] == own[0, 0]).all()
        assert (wide[48, 32 + 24] == own[32, 16]).all(), "the disc lies where it lay"


async def test_ignored_words_are_told_with_their_names(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        job = await running.make(picture("a red disc on zebras dancing"))
        (sentence,) = job.result["warnings"]
        assert "'zebras', 'dancing'" in sentence
        (detail,) = job.result["warning_details"]
        assert (detail["code"], detail["words"]) == ("prompt_words_ignored", ["zebras", "dancing"])
        assert job.result["revised_prompt"] == "a red disc on"


async def test_a_clip_with_thumbnail_and_sheet(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        job = await running.make(clip(seconds=4, output={"width": 192, "height": 128}, size="192x128"))
        assert job.status is JobStatus.COMPLETED, job.fault
        path = tmp_path / "clip.mp4"
        path.write_bytes(await running.file(job, "video.mp4"))
        with av.open(str(path)) as file:
            stream = file.streams.video[0]
            frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(stream)]
            assert (stream.codec_context.name, stream.width, stream.height) == ("h264", 192, 128)
            assert float(stream.average_rate) == 8.0
        assert len(frames) == 32
        assert np.abs(frames[0].astype(int) - frames[-1]).max() > 30, "something moves"
        assert path.read_bytes().find(b"moov") < path.read_bytes().find(b"mdat"), "plays before it is loaded"
        assert opened(await running.file(job, "thumbnail.webp")).size == (192, 128)
        sheet = opened(await running.file(job, "spritesheet.jpg"))
        assert sheet.width % 160 == sheet.height % 107 == 0
        assert 25 <= sheet.width // 160 * (sheet.height // 107) < 31
        assert (job.result["frames"], job.result["seconds"], job.result["fps"]) == (32, "4", 8.0)


async def test_a_clip_that_no_encoder_takes_fails_and_says_why(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        job = await running.make(clip(seconds=1, output={"width": 5000, "height": 64}))
        assert job.fault is not None
        assert job.fault.code == "encoding_failed"
        assert "too large" in job.fault.message


async def test_an_odd_size_becomes_a_clip_too(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        job = await running.make(clip(seconds=1, output={"width": 65, "height": 63}, size="65x63"))
        assert job.status is JobStatus.COMPLETED, job.fault


async def test_previews_are_shown_while_it_runs_and_gone_afterwards(tmp_path: Path) -> None:
    async with service(tmp_path, step_s=0.25) as running:
        submitted = await running.jobs.submit(clip(previews=4, steps=8, output={"width": 128, "height": 128}))
        seen: dict[int, bytes] = {}
        progress: list[float] = []
        async for job in running.jobs.watch(TENANT, submitted.id, deadline=time.monotonic() + 20):
            progress.append(job.progress)
            if (shown := await running.jobs.preview(job)) is not None:
                seen[job.preview] = shown
        assert job.status is JobStatus.COMPLETED, job.fault
        assert progress == sorted(progress)
        assert any(5 < value < 95 for value in progress)
        assert seen
        preview = opened(next(iter(seen.values())))
        assert (preview.format, preview.size) == ("WEBP", (64, 64))

        async def tidied() -> bool:
            return len(await running.jobs.files.keys(job_prefix(job))) == 3

        await eventually(tidied)
        assert await running.jobs.preview(job) is None


async def test_a_refused_request_fails_with_the_engines_sentence(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        job = await running.make(picture("refuse"))
        assert job.status is JobStatus.FAILED
        assert job.fault is not None
        assert (job.fault.code, job.fault.message) == ("invalid_request", "the painter refuses")
        assert job.attempt == 1


async def test_one_bad_picture_stops_the_others(tmp_path: Path) -> None:
    async with service(tmp_path, step_s=0.02) as running:
        new = picture("break", n=3, steps=200)
        job = await running.jobs.submit(new)
        await eventually(lambda: len(running.painter.bodies) == 3)
        await eventually(lambda: not running.painter.running)
        assert running.painter.aborted >= 3
        await running.jobs.delete(TENANT, job.id)


async def keep(running: Service, data: bytes, purpose: str = "vision") -> str:
    upload = await running.jobs.uploads.add(
        TENANT, data, time.time(), filename="x", purpose=purpose, content_type="application/octet-stream"
    )
    return upload.id


def png(array: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


async def test_an_edit_starts_from_the_picture_and_keeps_what_the_mask_covers(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        image = await keep(running, png(np.full((128, 128, 3), (10, 200, 30), np.uint8)))
        mask = np.zeros((128, 128, 4), np.uint8)
        mask[:, 64:, 3] = 255  # opaque on the right: it stays
        masked = await keep(running, png(mask))
        job = await running.make(picture(image=image, mask=masked, strength=0.9))
        assert job.status is JobStatus.COMPLETED, job.fault
        body = running.painter.bodies[-1]
        assert body.image is not None
        assert (body.image.width, body.image.height, body.strength) == (64, 64, 0.9)
        assert body.mask is not None
        field = np.frombuffer(body.mask, np.uint8).reshape(64, 64)
        assert (field[:, :32] == 255).all()
        assert (field[:, 32:] == 0).all()
        made = np.asarray(opened(await running.file(job, "image-0.png")).convert("RGB"))
        assert (made[:, 32:] == (10, 200, 30)).all()
        assert (made[32, 16] != (10, 200, 30)).any()


async def test_an_edit_of_a_file_that_is_gone_fails_and_says_so(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        job = await running.make(picture(image="file-" + "0" * 27))
        assert job.fault is not None
        assert job.fault.code == "file_not_found"


async def test_an_edit_of_no_picture_fails_and_says_so(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        job = await running.make(picture(image=await keep(running, b"no picture at all")))
        assert job.fault is not None
        assert (job.fault.code, job.fault.message) == (
            "invalid_request",
            "The file cannot be read as a picture: the data is no picture that can be read here; there are png, jpeg, webp, gif.",
        )


# ---- batches --------------------------------------------------------------------------------------------------------


def lines(*bodies: dict[str, Any]) -> bytes:
    return b"\n".join(
        json.dumps({"custom_id": f"line-{number}", "method": "POST", "url": "/v1/images/generations", "body": body}).encode()
        for number, body in enumerate(bodies)
    )


async def test_a_batch_answers_each_line_and_a_bad_one_does_not_fail_it(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        bodies = [
            {"prompt": "a red disc", "n": 2, "seed": 5},
            {"prompt": "refuse"},
            {"prompt": "a blue disc", "size": "1x1"},
            {"prompt": "x"},
        ]
        job = await running.make(batch(await keep(running, lines(*bodies), "batch"), 4))
        assert job.status is JobStatus.COMPLETED, job.fault
        assert job.result["request_counts"] == {"total": 4, "completed": 2, "failed": 2}
        good = [json.loads(line) for line in (await running.file(job, "output.jsonl")).splitlines()]
        bad = [json.loads(line) for line in (await running.file(job, "errors.jsonl")).splitlines()]
        assert [line["custom_id"] for line in good] == ["line-0", "line-3"]
        assert [line["custom_id"] for line in bad] == ["line-1", "line-2"]
        assert good[0]["response"]["status_code"] == 200
        pictures = good[0]["response"]["body"]["data"]
        assert len(pictures) == 2
        alone = await running.make(picture(seed=5))
        assert base64.b64decode(pictures[0]["b64_json"]) == await running.file(alone, "image-0.png")
        assert good[1]["response"]["body"]["warnings"] == ["The model does not know this word of the prompt and left it out: 'x'."]
        assert bad[0]["response"]["body"]["error"]["message"] == "the painter refuses"
        assert bad[1]["response"]["body"]["error"]["param"] == "size"
        output = await running.jobs.uploads.get(TENANT, f"file-{job.id}-output", time.time())
        assert output is not None
        assert await running.jobs.uploads.data(output) == await running.file(job, "output.jsonl")
        assert await running.jobs.uploads.get("somebody else", output.id, time.time()) is None
        listed = await running.jobs.uploads.list(TENANT, time.time(), purpose="batch_output")
        assert {upload.id for upload in listed.uploads} == {f"file-{job.id}-output", f"file-{job.id}-errors"}


async def test_a_running_batch_shows_its_counts_and_a_second_attempt_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    total = 30
    data = lines(*({"prompt": "a red disc", "seed": number} for number in range(total)))
    async with service(tmp_path, step_s=0.05) as running:
        submitted = await running.jobs.submit(batch(await keep(running, data, "batch"), total))
        async with asyncio.timeout(20):
            while True:
                job = await running.jobs.get(TENANT, submitted.id)
                assert job is not None
                counts = job.result.get("request_counts", {})
                if counts.get("completed", 0) >= 8:
                    break
                await asyncio.sleep(0.02)
        assert counts["total"] == total
        assert job.status is JobStatus.IN_PROGRESS
        drawn_before = len(running.painter.bodies)
    # The service was closed in the middle and gave the job back.
    async with service(tmp_path) as running:
        job = await running.done(submitted)
        assert job.status is JobStatus.COMPLETED, job.fault
        assert job.result["request_counts"] == {"total": total, "completed": total, "failed": 0}
        assert job.result["timing"]["resumed_lines"] >= 8
        assert len(running.painter.bodies) == total - job.result["timing"]["resumed_lines"]
        assert drawn_before >= job.result["timing"]["resumed_lines"]
        output = [json.loads(line) for line in (await running.file(job, "output.jsonl")).splitlines()]
        assert [line["custom_id"] for line in output] == [f"line-{number}" for number in range(total)]

        async def tidied() -> bool:
            return await running.jobs.files.get(work_key(job, "000000.ok")) is None

        await eventually(tidied)


async def test_a_batch_whose_file_is_no_batch_fails_and_says_where(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        job = await running.make(batch(await keep(running, b'{"custom_id": "a"\n', "batch"), 1))
        assert job.fault is not None
        assert "Line 1" in job.fault.message
