"""`/v1/files` and `/v1/batches` on a real server with a real queue."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from antiphon.tests.gateway.conftest import eventually
from antiphon.tests.gateway.media.conftest import client_of, ended, painter_of
from antiphon.tests.gateway.media.test_images import opened
from antiphon.tests.gateway.media.test_media_bodies import line

ENDPOINT = "/v1/images/generations"


async def uploaded(client: httpx.AsyncClient, data: bytes, purpose: str = "batch", name: str = "in.jsonl", **fields: str) -> dict[str, Any]:
    answer = await client.post("/v1/files", data={"purpose": purpose, **fields}, files={"file": (name, data)})
    assert answer.status_code == 200, answer.text
    file: dict[str, Any] = answer.json()
    return file


async def ordered(client: httpx.AsyncClient, text: str, **body: Any) -> dict[str, Any]:
    file = await uploaded(client, text.encode())
    answer = await client.post("/v1/batches", json={"input_file_id": file["id"], "endpoint": ENDPOINT, "completion_window": "24h", **body})
    assert answer.status_code == 200, answer.text
    batch: dict[str, Any] = answer.json()
    return batch


async def test_a_file_from_upload_to_removal(client: httpx.AsyncClient) -> None:
    file = await uploaded(client, b"hello", purpose="user_data", name="../a/bü.txt")
    assert (file["bytes"], file["filename"], file["purpose"], file["status"]) == (5, "bü.txt", "user_data", "processed")
    path = f"/v1/files/{file['id']}"
    assert (await client.get(path)).json() == file
    content = await client.get(f"{path}/content")
    assert (content.content, content.headers["content-type"]) == (b"hello", "text/plain; charset=utf-8")
    assert "sandbox" in content.headers["content-security-policy"]
    assert (await client.get(f"{path}/content", headers={"range": "bytes=1-2"})).content == b"el"
    assert (await client.delete(path)).json() == {"id": file["id"], "object": "file", "deleted": True}
    assert (await client.get(path)).status_code == 404
    assert (await client.get(f"{path}/content")).status_code == 404


async def test_a_page_that_was_uploaded_is_not_given_back_as_one(client: httpx.AsyncClient) -> None:
    files = {"file": ("x.html", b"<script>alert(1)</script>", "text/html")}
    file = (await client.post("/v1/files", data={"purpose": "user_data"}, files=files)).json()
    content = await client.get(f"/v1/files/{file['id']}/content")
    assert content.headers["content-type"] == "application/octet-stream"
    assert content.headers["x-content-type-options"] == "nosniff"


async def test_lists_of_files(client: httpx.AsyncClient) -> None:
    files = [await uploaded(client, b"x", purpose=purpose) for purpose in ("batch", "vision", "batch")]
    found = (await client.get("/v1/files", params={"purpose": "batch", "limit": 1})).json()
    assert ([one["id"] for one in found["data"]], found["has_more"]) == ([files[2]["id"]], True)
    found = (await client.get("/v1/files", params={"after": found["last_id"], "purpose": "batch"})).json()
    assert [one["id"] for one in found["data"]] == [files[0]["id"]]
    found = (await client.get("/v1/files", params={"order": "asc"})).json()
    assert [one["id"] for one in found["data"]] == [one["id"] for one in files]


async def test_a_file_may_expire_sooner(client: httpx.AsyncClient) -> None:
    fields = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    file = await uploaded(client, b"x", **fields)
    assert file["expires_at"] - file["created_at"] == 3600


@pytest.mark.parametrize(
    ("data", "files", "status", "param"),
    [
        ({"purpose": "batch"}, {}, 400, "file"),
        ({}, {"file": ("a", b"x")}, 400, "purpose"),
        ({"purpose": "fine-tune"}, {"file": ("a", b"x")}, 400, "purpose"),
        ({"purpose": "batch"}, {"file": ("a", b"")}, 400, "file"),
        ({"purpose": "batch", "expires_after[seconds]": "1"}, {"file": ("a", b"x")}, 400, "expires_after.anchor"),
        ({"purpose": "batch"}, {"file": ("a", b"x" * 3000)}, 413, "file"),
        ({"purpose": "batch"}, {"file": ("a", b"x" * 200_000)}, 413, None),
    ],
)
async def test_a_file_that_is_refused(
    slow_media: Callable[..., Any], data: dict[str, str], files: Any, status: int, param: str | None
) -> None:
    async with slow_media(jobs={"upload_bytes": 2000}) as server, client_of(server) as client:
        answer = await client.post("/v1/files", data=data, files=files or {"other": ("a", b"x")})
        assert answer.status_code == status, answer.text
        assert answer.json()["error"]["param"] == param


async def test_a_batch_from_its_order_to_its_files(client: httpx.AsyncClient) -> None:
    bodies = ['{"prompt": "a red disc", "n": 2}', '{"prompt": "a red disc", "n": 50}', '{"prompt": "refuse"}']
    batch = await ordered(client, "\n".join(line(f"l{number}", body) for number, body in enumerate(bodies)), metadata={"for": "test"})
    assert (batch["object"], batch["metadata"], batch["request_counts"]["total"]) == ("batch", {"for": "test"}, 3)
    batch = await ended(client, f"/v1/batches/{batch['id']}")
    assert batch["request_counts"] == {"total": 3, "completed": 1, "failed": 2}
    output = await client.get(f"/v1/files/{batch['output_file_id']}/content")
    (good,) = [json.loads(text) for text in output.text.splitlines()]
    assert (good["custom_id"], good["response"]["status_code"]) == ("l0", 200)
    pictures = good["response"]["body"]["data"]
    assert [opened(base64.b64decode(one["b64_json"])).size for one in pictures] == [(64, 64), (64, 64)]
    errors = await client.get(f"/v1/files/{batch['error_file_id']}/content")
    assert [json.loads(text)["custom_id"] for text in errors.text.splitlines()] == ["l1", "l2"]
    file = (await client.get(f"/v1/files/{batch['output_file_id']}")).json()
    assert (file["purpose"], file["bytes"]) == ("batch_output", len(output.content))
    assert (await client.delete(f"/v1/files/{batch['output_file_id']}")).status_code == 409
    assert {one["id"] for one in (await client.get("/v1/files?purpose=batch_output")).json()["data"]} == {
        batch["output_file_id"],
        batch["error_file_id"],
    }
    assert [one["id"] for one in (await client.get("/v1/batches")).json()["data"]] == [batch["id"]]


async def test_a_batch_is_cancelled(slow_media: Callable[..., Any]) -> None:
    async with slow_media() as server, client_of(server) as client:
        batch = await ordered(client, line("a", '{"prompt": "x", "num_inference_steps": 400}'))
        await eventually(lambda: painter_of(server).running == 1)
        answer = await client.post(f"/v1/batches/{batch['id']}/cancel")
        assert answer.json()["status"] in ("cancelling", "cancelled")
        assert (await ended(client, f"/v1/batches/{batch['id']}"))["status"] == "cancelled"
        await eventually(lambda: painter_of(server).running == 0)
        assert (await client.post("/v1/batches/batch_none/cancel")).status_code == 404


@pytest.mark.parametrize(
    ("changes", "status", "param"),
    [
        ({"endpoint": "/v1/chat/completions"}, 400, "endpoint"),
        ({"input_file_id": "file-none"}, 404, "input_file_id"),
        ({"input_file_id": 5}, 400, "input_file_id"),
        ({"metadata": {"a": 5}}, 400, "metadata.a"),
        ({"metadata": {str(number): "" for number in range(17)}}, 400, "metadata"),
        ({"metadata": {"a\x00": "b"}}, 400, "metadata"),
    ],
)
async def test_a_batch_that_is_refused(client: httpx.AsyncClient, changes: dict[str, Any], status: int, param: str) -> None:
    file = await uploaded(client, line().encode())
    body = {"input_file_id": file["id"], "endpoint": ENDPOINT, "completion_window": "24h", **changes}
    answer = await client.post("/v1/batches", json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"].startswith(param)


async def test_a_file_that_is_no_batch_is_refused_at_once(client: httpx.AsyncClient) -> None:
    for data, says in ((b"{", "Line 1"), (b"\x00\xff", "Line 1"), ((line() + "\n" + line()).encode(), "Line 2")):
        file = await uploaded(client, data)
        answer = await client.post("/v1/batches", json={"input_file_id": file["id"], "endpoint": ENDPOINT})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input_file_id")
        assert says in answer.json()["error"]["message"]
