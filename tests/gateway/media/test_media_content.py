"""Files over HTTP: ranges, ETags, HEAD."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from antiphon.gateway.errors import install_error_handlers
from antiphon.gateway.media.content import Content, respond
from fastapi import FastAPI, Request, Response

DATA = bytes(range(256)) * 4


def app(filename: str = "clip.mp4") -> FastAPI:
    served = FastAPI()
    install_error_handlers(served)

    async def read(start: int, end: int) -> AsyncIterator[bytes]:
        for at in range(start, end, 100):
            yield DATA[at : min(end, at + 100)]

    @served.api_route("/file", methods=["GET", "HEAD"])
    async def file(request: Request) -> Response:
        return await respond(request, Content(size=len(DATA), etag="abc", content_type="video/mp4", filename=filename, read=read))

    @served.get("/gone")
    async def gone(request: Request) -> Response:
        async def nothing(start: int, end: int) -> AsyncIterator[bytes]:
            raise FileNotFoundError("gone")
            yield b""

        return await respond(request, Content(size=5, etag="x", content_type="video/mp4", filename="x", read=nothing))

    return served


async def ask(path: str = "/file", method: str = "GET", filename: str = "clip.mp4", **headers: str) -> httpx.Response:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app(filename)), base_url="http://test") as client:
        return await client.request(method, path, headers=headers)


async def test_the_whole_file() -> None:
    answer = await ask()
    assert (answer.status_code, answer.content) == (200, DATA)
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["etag"] == '"abc"'
    assert answer.headers["content-length"] == str(len(DATA))
    assert answer.headers["content-type"] == "video/mp4"


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-", 0, 1024),
        ("bytes=100-199", 100, 200),
        ("bytes=1000-99999", 1000, 1024),
        ("bytes=-24", 1000, 1024),
        ("bytes=-99999", 0, 1024),
        ("Bytes = 1 - 2", 1, 3),
    ],
)
async def test_a_range(asked: str, start: int, end: int) -> None:
    answer = await ask(range=asked)
    assert (answer.status_code, answer.content) == (206, DATA[start:end])
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/1024"
    assert answer.headers["content-length"] == str(end - start)


@pytest.mark.parametrize("asked", ["bytes=1024-", "bytes=99999999999-", "bytes=-0"])
async def test_a_range_outside_the_file(asked: str) -> None:
    answer = await ask(range=asked)
    assert (answer.status_code, answer.headers["content-range"]) == (416, "bytes */1024")
    assert answer.json()["error"]["code"] == "range_not_satisfiable"


@pytest.mark.parametrize("asked", ["bytes=5-2", "bytes=0-1,4-5", "items=0-1", "bytes=a-b", "bytes=-", "", "x" * 500])
async def test_a_range_that_is_not_understood_is_ignored(asked: str) -> None:
    answer = await ask(range=asked)
    assert (answer.status_code, len(answer.content)) == (200, 1024)


async def test_the_head_alone() -> None:
    answer = await ask(method="HEAD")
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "1024")
    answer = await ask(method="HEAD", range="bytes=0-9")
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (206, b"", "10")


@pytest.mark.parametrize("known", ['"abc"', 'W/"abc"', '"x", "abc"', "*"])
async def test_what_the_client_has_already(known: str) -> None:
    answer = await ask(if_none_match=known)
    assert (answer.status_code, answer.content) == (304, b"")


async def test_a_range_of_another_version_gets_the_whole_file() -> None:
    assert (await ask(range="bytes=0-9", if_range='"abc"')).status_code == 206
    assert (await ask(range="bytes=0-9", if_range='"old"')).status_code == 200


async def test_a_file_that_is_gone() -> None:
    answer = await ask("/gone")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


async def test_a_file_name_cannot_break_out_of_its_header() -> None:
    answer = await ask(filename='ä"; x=1\\.png')
    assert answer.headers["content-disposition"] == ("inline; filename=\"__; x=1_.png\"; filename*=UTF-8''%C3%A4%22%3B%20x%3D1%5C.png")
