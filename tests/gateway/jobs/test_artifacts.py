"""Files in a folder and in a bucket (a real S3 server on this machine): whole or not at all, never overwritten, read in ranges."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from antiphon.gateway.jobs.artifacts import FileStore, storage_place
from antiphon.gateway.jobs.errors import JobFailedError
from antiphon.gateway.jobs.job import JobStatus
from antiphon.tests.gateway.jobs.service_kit import TENANT, clip, service

KEY = "tenant/2026/11/video_1/1/video.mp4"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3 server with an empty bucket."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture(params=["folder", "bucket"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileStore:
    place = str(tmp_path / "artifacts")
    if request.param == "bucket":
        address = request.getfixturevalue("s3")
        bucket = f"antiphon-{time.monotonic_ns()}"
        for name, value in aws(address).items():
            monkeypatch.setenv(name, value)
        await asyncio.to_thread(make_bucket, address, bucket)
        place = f"s3://{bucket}/some/prefix"
    files = FileStore(place)
    await files.open()
    return files


def aws(address: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
    }


def make_bucket(address: str, bucket: str) -> None:
    import boto3

    client = boto3.client("s3", endpoint_url=address, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    client.create_bucket(Bucket=bucket)


async def read(files: FileStore, key: str, start: int = 0, end: int | None = None) -> bytes:
    return b"".join([piece async for piece in files.read(key, start=start, end=end)])


async def test_what_was_put_is_read_whole_and_in_ranges(store: FileStore, tmp_path: Path) -> None:
    data = os.urandom(700_001)
    kept = await store.put(KEY, data, "video/mp4")
    assert (kept.name, kept.key, kept.size, kept.content_type) == ("video.mp4", KEY, len(data), "video/mp4")
    assert await read(store, KEY) == data
    assert await read(store, KEY, 5, 10) == data[5:10]
    assert await read(store, KEY, 700_000) == data[-1:]
    assert await read(store, KEY, 10, 10) == b""
    path = tmp_path / "file"
    path.write_bytes(data)
    assert (await store.put(KEY.replace("video_1", "video_2"), path, "video/mp4")).sha256 == kept.sha256


async def test_a_large_file_comes_in_pieces(store: FileStore) -> None:
    await store.put(KEY, bytes(4 << 20), "video/mp4")
    pieces = [len(piece) async for piece in store.read(KEY)]
    assert sum(pieces) == 4 << 20
    assert len(pieces) > 1


async def test_a_file_is_never_overwritten_but_may_be_put_twice(store: FileStore) -> None:
    first = await store.put(KEY, b"one", "text/plain")
    assert await store.put(KEY, b"one", "text/plain") == first
    with pytest.raises(JobFailedError) as refused:
        await store.put(KEY, b"two", "text/plain")
    assert refused.value.code == "storage_failed"
    assert await read(store, KEY) == b"one"


async def test_previews_are_replaced(store: FileStore) -> None:
    await store.replace(KEY, b"one", "image/webp")
    await store.replace(KEY, b"two", "image/webp")
    assert await store.get(KEY) == b"two"


async def test_what_is_not_there(store: FileStore) -> None:
    with pytest.raises(FileNotFoundError):
        await read(store, KEY)
    assert await store.get(KEY) is None
    assert await store.keys("tenant") == []
    assert await store.remove("tenant") == 0
    await store.remove_keys([KEY])  # somebody else removed it first: no fault


async def test_a_prefix_ends_at_a_slash(store: FileStore) -> None:
    for job in ("video_1", "video_10"):
        await store.put(f"tenant/2026/11/{job}/1/a", b"a", "text/plain")
        await store.put(f"tenant/2026/11/{job}/2/b", b"b", "text/plain")
    found = await store.keys("tenant/2026/11/video_1")
    assert sorted(key for key, _ in found) == ["tenant/2026/11/video_1/1/a", "tenant/2026/11/video_1/2/b"]
    assert all(abs(time.time() - modified) < 100 for _, modified in found)
    assert await store.remove("tenant/2026/11/video_1") == 2
    assert len(await store.keys("")) == 2


async def test_a_job_keeps_its_files_in_a_bucket(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in aws(s3).items():
        monkeypatch.setenv(name, value)
    await asyncio.to_thread(make_bucket, s3, "jobs")
    async with service(tmp_path, artifacts="s3://jobs/media") as running:
        job = await running.make(clip(previews=2))
        assert job.status is JobStatus.COMPLETED, job.fault
        data = await running.file(job, "video.mp4")
        assert data[4:8] == b"ftyp"
        assert [len(piece) async for piece in running.jobs.read(job.artifacts[0], start=4, end=8)] == [4]
        assert await running.jobs.delete(TENANT, job.id)
        assert await running.jobs.files.keys("") == []
    assert not (tmp_path / "artifacts").exists()


FULL = """
import asyncio, resource, signal, sys
from antiphon.gateway.jobs.artifacts import FileStore
from antiphon.gateway.jobs.errors import JobFailedError

async def main():
    files = FileStore(sys.argv[1])
    await files.open()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # as much room as a nearly full disk has
    for put in (files.put, files.replace):
        try:
            await put("tenant/2026/11/video_1/1/video.mp4", bytes(300_000), "video/mp4")
        except JobFailedError as error:
            print(error.code)
    print(await files.keys(""))

asyncio.run(main())
"""


def test_a_full_disk_fails_the_job_and_leaves_no_half_file(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.splitlines() == ["storage_failed", "storage_failed", "[]"]
    assert not everything(tmp_path)


def everything(folder: Path) -> list[Path]:
    """Every file in a folder, whatever its name."""
    return [path for path in folder.rglob("*") if path.is_file()]


KILLED = """
import asyncio, os, sys
from antiphon.gateway.jobs.artifacts import FileStore

async def main():
    files = FileStore(sys.argv[1])
    await files.open()
    print("ready", flush=True)
    number = 0
    while True:
        number += 1
        await files.put(f"tenant/2026/11/video_1/{number}/video.mp4", bytes([number % 256]) * 3_000_000, "video/mp4")

asyncio.run(main())
"""


def test_a_writer_that_is_killed_leaves_whole_files_and_halves_that_are_swept(tmp_path: Path) -> None:
    for round_ in range(4):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / str(round_))], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.15 + 0.03 * round_)
        process.kill()
        process.wait()
        process.stdout.close()

        async def look(folder: Path) -> None:
            files = FileStore(folder)
            await files.open()
            found = await files.keys("")
            assert found, "nothing was written at all"
            for key, _ in found:
                data = await read(files, key)
                assert len(data) == 3_000_000
                assert set(data) == {int(key.split("/")[4]) % 256}
            await files.remove_halves(time.time() + 1)
            assert len(everything(folder)) == len(found)

        asyncio.run(look(tmp_path / str(round_)))


async def test_a_bucket_that_cannot_be_reached_is_a_clear_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in aws("http://127.0.0.1:1").items():
        monkeypatch.setenv(name, value)
    files = FileStore("s3://bucket/prefix")
    await files.open()
    with pytest.raises(JobFailedError, match="could not be kept"):
        await files.put(KEY, b"x", "text/plain")


def test_places(tmp_path: Path) -> None:
    assert storage_place(tmp_path, "") == str(tmp_path / "artifacts")
    assert storage_place(tmp_path, "s3://bucket") == "s3://bucket"
    with pytest.raises(ValueError, match="s3://bucket/prefix"):
        storage_place(tmp_path, "gs:bucket://x")
