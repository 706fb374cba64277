"""Hostile bodies: each gets a clear answer in the one shape, and the server goes on."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import random
from typing import Any

import httpx
import pytest
from antiphon.tests.gateway.conftest import RunningServer
from PIL import Image

POSTS = (
    "/v1/videos",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/files",
    "/v1/batches",
    "/v1/videos/sync",
    "/v1/videos/video_x/remix",
)
BOUNDARY = "multipart/form-data; boundary=B"


def part(headers: bytes, body: bytes = b"x", *, end: bytes = b"--B--\r\n") -> bytes:
    return b"--B\r\n" + headers + b"\r\n\r\n" + body + b"\r\n" + end


BODIES: list[tuple[str, bytes]] = [
    ("application/json", b""),
    ("application/json", b"{"),
    ("application/json", b"[]"),
    ("application/json", b"null"),
    ("application/json", b'"x"'),
    ("application/json", b"\xff\xfe{}"),
    ("application/json", b"[" * 100_000),
    ("application/json", b'{"prompt":' * 50_000),
    ("application/json", b'{"prompt": NaN}'),
    ("application/json", b'{"prompt": "x", "guidance_scale": Infinity}'),
    ("application/json", b'{"prompt": "x", "n": 1e999, "seed": 1e999}'),
    ("application/json", b'{"prompt": "x", "n": ' + b"9" * 5000 + b"}"),
    ("application/json", b'{"prompt": "\\u0000"}'),
    ("application/json", b'{"prompt": "\\ud800"}'),
    ("application/json", b'{"prompt": {"$gt": ""}}'),
    ("application/json", b'{"\\ud800": 1, "prompt": ""}'),
    ("application/x-www-form-urlencoded", b"prompt=%00"),
    ("application/x-www-form-urlencoded", b"%ff=%ff&[]=1"),
    ("application/x-www-form-urlencoded", b"prompt"),
    ("multipart/form-data", b"x"),
    (BOUNDARY, b""),
    (BOUNDARY, b"--B--\r\n"),
    (BOUNDARY, b"no boundary at all"),
    (BOUNDARY, part(b"Content-Disposition: form-data")),
    (BOUNDARY, part(b"Content-Type: text/plain")),
    (BOUNDARY, part(b'Content-Disposition: form-data; name="prompt"', end=b"")),
    (BOUNDARY, part(b'Content-Disposition: form-data; name="prompt"', b"\x00\xff\xfe")),
    (BOUNDARY, part(b'Content-Disposition: form-data; name="prompt"; filename="x"')),
    (BOUNDARY, part(b'Content-Disposition: form-data; name="pro\x00mpt"')),
    (BOUNDARY, part(b'Content-Disposition: form-data; name=""')),
    (BOUNDARY, part(b'Content-Disposition: form-data; name="a[b][c]"')),
    (BOUNDARY, part(b'Content-Disposition: form-data; name="]["')),
    (BOUNDARY, part(b'Content-Disposition: form-data; name="\xff"')),
    (BOUNDARY, part(b'Content-Disposition: form-data; name="input_reference"')),
    (BOUNDARY, b"".join(b'--B\r\nContent-Disposition: form-data; name="f%d"\r\n\r\nx\r\n' % n for n in range(500)) + b"--B--\r\n"),
    (
        BOUNDARY,
        b"".join(b'--B\r\nContent-Disposition: form-data; name="f"; filename="%d"\r\n\r\nx\r\n' % n for n in range(50)) + b"--B--\r\n",
    ),
    (BOUNDARY, part(b'Content-Disposition: form-data; name="prompt"', b"x" * 300_000)),
    (BOUNDARY, part(b'Content-Disposition: form-data; name="prompt"\r\n' + b"X-Many: y\r\n" * 5000)),
    ("text/plain", b"x"),
    ("multipart/mixed; boundary=B", part(b"")),
    ("x" * 1000, b"x"),
]


@pytest.mark.parametrize("number", range(len(BODIES)))
async def test_a_hostile_body(client: httpx.AsyncClient, number: int) -> None:
    kind, body = BODIES[number]
    for path in POSTS:
        answer = await client.post(path, content=body, headers={"content-type": kind})
        assert answer.status_code in (400, 404, 413, 415), (path, answer.text)
        error = answer.json()["error"]
        assert error["message"]
        assert error["code"]


async def test_bodies_that_are_too_large_are_refused_while_they_arrive(client: httpx.AsyncClient) -> None:
    async def endless() -> Any:
        yield b'{"prompt": "'
        for _ in range(100):
            yield b"x" * 65536

    answer = await client.post("/v1/images/generations", content=endless(), headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    body = json.dumps({"prompt": "x" * 2_000_000}).encode()
    assert (await client.post("/v1/images/generations", content=body, headers={"content-type": "application/json"})).status_code == 413


@pytest.mark.parametrize(
    "path",
    [
        "/v1/videos/%00",
        "/v1/videos/..%2f..",
        "/v1/videos/%F0%9F%98%80",
        "/v1/videos/" + "x" * 5000,
        "/v1/files/%ff",
        "/v1/batches/'--",
        "/v1/images/%00/content",
    ],
)
async def test_a_hostile_id(client: httpx.AsyncClient, path: str) -> None:
    for method in ("GET", "DELETE"):
        assert (await client.request(method, path)).status_code in (400, 404, 405)


async def test_random_bodies_and_vanishing_clients(media: RunningServer, client: httpx.AsyncClient) -> None:
    generator = random.Random(4)
    syntax = [b"\x00", b"\xff", b"--B", b"--", b"\r\n", b"\r\n\r\n", b"[", b"]", b"{", b"}", b":", b",", b'"', b"\\u", b"-", b"1e9"]
    words = [b"prompt", b"seed", b'"prompt"', b"Content-Disposition: form-data; name=", b"; filename=", b'"a.png"']
    pieces = syntax + words
    port = int(media.url.rsplit(":", 1)[1])
    for _ in range(150):
        body = b"".join(generator.choices(pieces, k=generator.randrange(40)))
        kind = generator.choice(["application/json", BOUNDARY, "application/x-www-form-urlencoded"])
        path = generator.choice(POSTS)
        answer = await client.post(path, content=body, headers={"content-type": kind})
        assert answer.status_code < 500, (path, kind, body, answer.text)
        if generator.random() < 0.2:  # another client that says what it will send, sends half of it and goes
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\ncontent-length: {len(body) + 10}\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
            writer.close()
    assert (await client.get("/v1/videos")).status_code == 200


async def test_a_large_picture_in_a_data_url(client: httpx.AsyncClient) -> None:
    file = io.BytesIO()
    Image.frombytes("RGB", (1024, 700), random.Random(1).randbytes(1024 * 700 * 3)).save(file, "PNG")
    url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    assert len(url) > 2_500_000
    answer = await client.post("/v1/videos", json={"prompt": "x", "num_frames": 1, "input_reference": {"image_url": url}})
    assert answer.status_code == 200, answer.text
    files = {"prompt": (None, "x"), "num_frames": (None, "1"), "input_reference[image_url]": (None, url)}
    answer = await client.post("/v1/videos", files=files)
    assert answer.status_code == 200, answer.text
