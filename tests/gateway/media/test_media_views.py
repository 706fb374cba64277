"""Jobs as the API shows them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from antiphon.gateway.jobs.job import Artifact, Job, JobFault, JobKind, JobPage, JobStatus
from antiphon.gateway.media.links import LIFETIME_S, Link, Links
from antiphon.gateway.media.schemas import BatchObject, PictureJobObject, VideoObject
from antiphon.gateway.media.views import POLL_LONGEST_MS, POLL_SHORTEST_MS, batch, page, picture_job, poll_after_ms, video
from openai.types import Batch, Video


def job(**changes: Any) -> Job:
    base = Job(
        id="video_1",
        seq=1,
        tenant="public",
        kind=JobKind.VIDEO,
        lane="small",
        model="sora-2",
        request={"prompt": "a red disc", "size": "720x1280", "seconds": "4", "seed": 5, "output": {"fps": 8.0, "format": "mp4"}},
        request_hash="h",
        status=JobStatus.QUEUED,
        progress=0.0,
        priority=0,
        attempt=0,
        max_attempts=3,
        owner=None,
        lease_until=None,
        cancel_requested=False,
        created_at=1000.5,
    )
    return replace(base, **changes)


DONE = {"status": JobStatus.COMPLETED, "progress": 100.0, "started_at": 1001.0, "finished_at": 1009.9, "expires_at": 2000.0}


def test_a_clip_through_its_life() -> None:
    shown = Video.model_validate(video(job()))
    assert (shown.status, shown.progress, shown.seconds, shown.size, shown.error) == ("queued", 0, "4", "720x1280", None)
    shown = Video.model_validate(video(job(status=JobStatus.IN_PROGRESS, progress=99.9)))
    assert (shown.status, shown.progress) == ("in_progress", 99)
    shown = Video.model_validate(video(job(**DONE, result={"seed": 5, "warnings": ["the word 'xyz' was ignored"]})))
    assert (shown.status, shown.progress, shown.completed_at, shown.expires_at) == ("completed", 100, 1009, 2000)
    assert shown.warnings == ["the word 'xyz' was ignored"]  # type: ignore[attr-defined]


def test_a_failed_and_a_cancelled_clip() -> None:
    shown = video(job(status=JobStatus.FAILED, fault=JobFault(code="worker_died", message="It died."), finished_at=1002.0))
    assert (shown["status"], shown["error"], shown["completed_at"]) == ("failed", {"code": "worker_died", "message": "It died."}, None)
    shown = video(job(status=JobStatus.CANCELLED, finished_at=1002.0))
    assert (shown["status"], shown["error"]["code"]) == ("failed", "cancelled")


def test_warnings_of_the_order_and_of_the_work_are_told_once() -> None:
    told = video(job(request={"warnings": ["slowed"]}, result={"warnings": ["ignored", "slowed"]}))["warnings"]
    assert told == ["slowed", "ignored"]


def test_the_objects_are_as_described() -> None:
    VideoObject.model_validate(video(job(**DONE)))
    PictureJobObject.model_validate(picture_job(job(kind=JobKind.IMAGE, **DONE)))
    BatchObject.model_validate(batch(job(kind=JobKind.BATCH, request={"total": 4, "input_file_id": "f", "endpoint": "/e"})))


def test_a_batch_through_its_life() -> None:
    asked = job(id="batch_1", kind=JobKind.BATCH, request={"total": 4, "input_file_id": "file-1", "endpoint": "/v1/images/generations"})
    assert Batch.model_validate(batch(asked)).status == "validating"
    running = replace(asked, status=JobStatus.IN_PROGRESS, progress=50.0, started_at=1001.0)
    shown = Batch.model_validate(batch(running))
    assert (shown.status, shown.request_counts.completed if shown.request_counts else None) == ("in_progress", 2)
    assert batch(replace(running, result={"request_counts": {"total": 4, "completed": 1, "failed": 2}}))["request_counts"]["failed"] == 2
    assert batch(replace(running, cancel_requested=True))["status"] == "cancelling"
    output = Artifact(name="output.jsonl", key="k", size=1, sha256="s", content_type="application/jsonl")
    done = Batch.model_validate(batch(replace(asked, **DONE, artifacts=(output,))))
    assert (done.status, done.completed_at, done.output_file_id, done.error_file_id) == ("completed", 1009, "file-batch_1-output", None)
    failed = Batch.model_validate(batch(replace(asked, status=JobStatus.FAILED, fault=JobFault(code="c", message="m"), finished_at=1003.0)))
    assert failed.errors is not None
    assert failed.errors.data is not None
    assert (failed.failed_at, failed.errors.data[0].message) == (1003, "m")


def test_a_page_names_its_ends() -> None:
    found = page(JobPage(jobs=(job(id="video_2"), job()), has_more=True), video)
    assert (found["first_id"], found["last_id"], found["has_more"]) == ("video_2", "video_1", True)
    assert page(JobPage(jobs=(), has_more=False), video) == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }


@pytest.mark.parametrize(
    ("changes", "now", "expected"),
    [
        ({}, 1000.5, POLL_SHORTEST_MS),
        ({}, 1005.5, 1250),
        ({}, 9999.0, POLL_LONGEST_MS),
        ({"status": JobStatus.IN_PROGRESS, "started_at": 1001.0, "progress": 50.0}, 1005.0, 1000),
        ({"status": JobStatus.IN_PROGRESS, "started_at": 1001.0, "progress": 99.0}, 1005.0, POLL_SHORTEST_MS),
        ({"status": JobStatus.IN_PROGRESS, "started_at": 1001.0, "progress": 1.0}, 1100.0, POLL_LONGEST_MS),
    ],
)
def test_when_to_ask_again(changes: dict[str, Any], now: float, expected: int) -> None:
    assert poll_after_ms(job(**changes), now) == expected


def test_a_link_opens_one_picture_for_an_hour() -> None:
    now = 1000.0
    links = Links("s" * 32, clock=lambda: now)
    link = Link("public", "imgjob_1", "image-0.png")
    token = links.token(link)
    assert links.read(token) == link
    assert Links("s" * 32, clock=lambda: now).read(token) == link
    assert Links("o" * 32, clock=lambda: now).read(token) is None
    assert links.read(token[:-2]) is None
    assert links.read("") is None
    now += LIFETIME_S
    assert links.read(token) is None


def test_a_link_does_not_outlive_its_job() -> None:
    now = 1000.0
    links = Links(clock=lambda: now)
    token = links.token(Link("public", "imgjob_1", "image-0.png"), expires_at=1010.0)
    now = 1011.0
    assert links.read(token) is None
