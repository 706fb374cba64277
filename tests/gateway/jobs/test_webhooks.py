"""Webhooks: signed so that OpenAI's SDK accepts them, tried until they are heard, never sent where they must not go."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import random
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import openai
import pytest
from antiphon.gateway.jobs import telling, webhooks
from antiphon.gateway.jobs.callers import Caller, ForbiddenAddressError, InvalidWebhookError, check_url
from antiphon.gateway.jobs.errors import JobError
from antiphon.gateway.jobs.job import Job, JobKind, JobStatus
from antiphon.gateway.jobs.webhooks import WebhookOptions, Webhooks, event_of, pause_after, secret_bytes
from antiphon.tests.gateway.jobs.service_kit import TENANT, clip, eventually, picture, service

SECRET = "whsec_" + base64.b64encode(b"a secret of the house").decode()


@dataclass
class Received:
    """One call."""

    headers: dict[str, str]
    body: bytes
    line: str

    @property
    def event(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(self.body)
        return event


@dataclass
class Receiver:
    """An HTTP server that remembers its calls; `answers` are the statuses of the first ones, then 200. Status 0: it says nothing."""

    answers: list[int] = field(default_factory=list)
    calls: list[Received] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *rest = head.split("\r\n")
            headers = {name.lower(): value for name, _, value in (entry.partition(": ") for entry in rest if entry)}
            body = await reader.readexactly(int(headers["content-length"]))
            self.calls.append(Received(headers, body, line))
            status = self.answers.pop(0) if self.answers else 200
            if status == 0:
                await asyncio.sleep(30)
            extra = f"location: {self.url}/elsewhere\r\n" if status == 302 else ""
            writer.write(f"HTTP/1.1 {status} X\r\n{extra}content-length: 0\r\n\r\n".encode())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def until(self, count: int, within: float = 10.0) -> None:
        await eventually(lambda: len(self.calls) >= count, within)


@asynccontextmanager
async def receiving(*answers: int, context: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[Receiver]:
    receiver = Receiver(list(answers))
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    receiver.url = f"{'https' if context else 'http'}://{host}:{port}/hook"
    try:
        yield receiver
    finally:
        server.close()


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    caller = Caller()
    yield caller
    await caller.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short pauses."""
    monkeypatch.setattr(webhooks, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(webhooks, "LONGEST_PAUSE", 0.2)
    monkeypatch.setattr(telling, "LOOK", 0.05)


# ---- end to end -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
async def test_the_sdk_accepts_what_is_sent(tmp_path: Path) -> None:
    async with (
        receiving() as operator,
        receiving() as client,
        service(tmp_path, webhooks=(operator.url,), webhook_secret=SECRET, webhook_private=True) as running,
    ):
        job = await running.make(clip(webhook=client.url))
        await operator.until(1)
        await client.until(1)
        (call,) = operator.calls
        sdk = openai.OpenAI(api_key="x", webhook_secret=SECRET).webhooks
        event = sdk.unwrap(call.body, call.headers)
        assert event.type == "video.completed"  # type: ignore[comparison-overlap]
        assert event.data.id == job.id  # type: ignore[union-attr]
        assert call.event["object"] == "event"
        assert abs(call.event["created_at"] - time.time()) < 60
        assert call.headers["webhook-id"] == call.event["id"] == client.calls[0].headers["webhook-id"]
        with pytest.raises(openai.InvalidWebhookSignatureError):
            sdk.unwrap(call.body.replace(b"completed", b"cancelled"), call.headers)
        with pytest.raises(openai.InvalidWebhookSignatureError):
            sdk.unwrap(call.body, call.headers, secret="whsec_" + base64.b64encode(b"another").decode())
        await asyncio.sleep(0.3)
        assert len(operator.calls) == len(client.calls) == 1, "what was heard is not said again"
        assert running.metrics.value("antiphon_webhooks_total", {"outcome": "delivered"}) == 2


@pytest.mark.usefixtures("impatient")
async def test_each_end_has_its_event(tmp_path: Path) -> None:
    async with receiving() as receiver, service(tmp_path, step_s=0.05, webhooks=(receiver.url,)) as running:
        failed = await running.make(picture("refuse"))
        running_job = await running.jobs.submit(clip(steps=400))
        await asyncio.sleep(0.3)
        await running.jobs.cancel(TENANT, running_job.id)
        cancelled = await running.done(running_job)
        await receiver.until(2)
        events = {(call.event["data"]["id"], call.event["type"]) for call in receiver.calls}
        assert events == {(failed.id, "image.failed"), (cancelled.id, "video.cancelled")}
        assert "webhook-signature" not in receiver.calls[0].headers, "without a secret there is no signature"


@pytest.mark.usefixtures("impatient")
async def test_it_is_tried_again_with_the_same_id_until_it_is_heard(tmp_path: Path) -> None:
    async with receiving(500, 302, 404) as deaf, receiving() as well, service(tmp_path, webhooks=(deaf.url, well.url)) as running:
        await running.make(picture())
        await deaf.until(4)
        await asyncio.sleep(0.5)
        assert len(deaf.calls) == 4
        assert len({call.headers["webhook-id"] for call in deaf.calls}) == 1
        assert all(call.line.startswith("POST /hook ") for call in deaf.calls), "redirects are not followed"
        assert len(well.calls) == 1, "who has heard it is not told again"
        assert running.metrics.value("antiphon_webhooks_total", {"outcome": "failed"}) == 3


@pytest.mark.usefixtures("impatient")
async def test_it_ends_after_the_last_try_and_when_the_receiver_is_gone(tmp_path: Path) -> None:
    async with receiving(*[500] * 9) as deaf, receiving(410) as gone:
        async with service(tmp_path, webhooks=(deaf.url, gone.url), webhook_attempts=3) as running:
            await running.make(picture())
            await deaf.until(3)
            await eventually(lambda: running.metrics.value("antiphon_webhooks_total", {"outcome": "gave_up"}) == 1)
            assert running.metrics.value("antiphon_webhooks_total", {"outcome": "refused"}) == 1
            await asyncio.sleep(0.4)
        assert (len(deaf.calls), len(gone.calls)) == (3, 1)


@pytest.mark.usefixtures("impatient")
async def test_an_end_that_nobody_could_tell_is_told_after_a_restart(tmp_path: Path) -> None:
    async with receiving(*[503] * 1000) as receiver:
        async with service(tmp_path, webhooks=(receiver.url,), webhook_attempts=50) as running:
            job = await running.make(picture())
            await receiver.until(1)
        before = len(receiver.calls)
        receiver.answers.clear()
        async with service(tmp_path, webhooks=(receiver.url,), webhook_attempts=50) as running:
            await receiver.until(before + 1, within=20)
        assert receiver.calls[-1].event["data"]["id"] == job.id
        assert receiver.calls[-1].headers["webhook-id"] == receiver.calls[0].headers["webhook-id"]


@pytest.mark.usefixtures("impatient")
async def test_two_processes_tell_it_once(tmp_path: Path) -> None:
    async with receiving() as receiver, service(tmp_path, webhooks=(receiver.url,)) as one:
        async with service(tmp_path, webhooks=(receiver.url,)):
            jobs = [await one.jobs.submit(picture(seed=seed)) for seed in range(12)]
            for job in jobs:
                await one.done(job)
            await receiver.until(12)
            await asyncio.sleep(0.5)
        assert sorted(call.event["data"]["id"] for call in receiver.calls) == sorted(job.id for job in jobs)


@pytest.mark.usefixtures("impatient")
async def test_a_receiver_that_says_nothing_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "DEADLINE", 0.5)
    async with (
        receiving(0, 0) as silent,
        receiving() as well,
        service(tmp_path, webhooks=(silent.url,), webhook_private=True) as running,
    ):
        await running.make(picture(webhook=well.url))
        await well.until(1, within=5)
        await silent.until(3, within=10)


# ---- where it may go ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/x",
        "http://localhost:80/x",
        "http://x.localhost/x",
        "https://10.1.2.3/x",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/x",
        "http://[::ffff:10.0.0.1]/x",
        "http://[fd00::1]/x",
        "http://[64:ff9b::a00:1]/x",
        "http://0.0.0.0/x",
        "http://100.64.1.1/x",
        "http://224.0.0.1/x",
    ],
)
def test_a_client_may_not_name_addresses_of_this_machine_or_network(url: str) -> None:
    with pytest.raises(ForbiddenAddressError):
        check_url(url, private=False)
    check_url(url, private=True)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://host/x",
        "http://",
        "https://a b/x",
        "https://user:word@host/",
        "http://host:0/",
        "http://host:99999/",
        "//host/x",
        "http://h/" + "x" * 3000,
        "http://host/\r\nx",
    ],
)
def test_what_is_no_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidWebhookError):
        check_url(url, private=True)


async def test_the_order_is_refused_not_only_the_call(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        with pytest.raises(JobError, match="not on the public internet"):
            await running.jobs.submit(picture(webhook="http://127.0.0.1:9/x"))
        assert not (await running.jobs.list(TENANT, JobKind.IMAGE)).jobs


def resolving(monkeypatch: pytest.MonkeyPatch, answers: Callable[[str], list[str]]) -> list[str]:
    """Have names resolve so; gives the names that were asked for."""
    loop = asyncio.get_running_loop()
    asked: list[str] = []
    real = loop.getaddrinfo

    async def getaddrinfo(host: str, port: int, **options: Any) -> Any:
        if str(host).endswith(".test"):
            asked.append(str(host))
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers(str(host))]
        return await real(host, port, **options)

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    return asked


async def test_a_public_name_with_a_private_address_is_not_called(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, lambda _: ["127.0.0.1"])
    async with receiving(host="evil.test") as receiver:
        with pytest.raises(ForbiddenAddressError, match=r"evil\.test \(127\.0\.0\.1\)"):
            await caller.post(receiver.url, b"{}", {}, private=False, seconds=5)
        assert not receiver.calls


async def test_a_name_is_resolved_once_and_that_address_is_called(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    changing = iter([["127.0.0.1"], ["192.0.2.1"]])
    asked = resolving(monkeypatch, lambda _: next(changing))
    async with receiving(host="receiver.test") as receiver:
        assert await caller.post(receiver.url, b"{}", {}, private=True, seconds=5) == 200
        assert receiver.calls[0].headers["host"] == receiver.url.split("/")[2]
    assert asked == ["receiver.test"]


async def test_the_certificate_must_be_that_of_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, lambda _: ["127.0.0.1"])
    served, trusted = certificate(tmp_path, "receiver.test")
    caller = Caller(trusted)
    try:
        async with receiving(context=served, host="receiver.test") as receiver:
            assert await caller.post(receiver.url, b"{}", {}, private=True, seconds=5) == 200
        async with receiving(context=served, host="another.test") as receiver:
            with pytest.raises(OSError, match=r"(?i)hostname mismatch|certificate"):
                await caller.post(receiver.url, b"{}", {}, private=True, seconds=5)
            assert not receiver.calls
    finally:
        await caller.close()


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context for `name`, and a client's that trusts it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(file)
    return served, ssl.create_default_context(cafile=str(file))


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "http://nowhere.invalid/x"])
async def test_nobody_there(caller: Caller, url: str) -> None:
    with pytest.raises(OSError, match=r".+"):
        await caller.post(url, b"{}", {}, private=True, seconds=10)


# ---- the parts ------------------------------------------------------------------------------------------------------


def ended(status: JobStatus = JobStatus.COMPLETED, webhook: str | None = None) -> Job:
    return Job(
        id="video_1", seq=1, tenant=TENANT, kind=JobKind.VIDEO, lane="painter", model="m", request={}, request_hash="", status=status,
        progress=100, priority=0, attempt=1, max_attempts=3, owner=None, lease_until=None, cancel_requested=False, created_at=1.0,
        finished_at=2.0, webhook=webhook,
    )  # fmt: skip


def test_the_pause_grows_and_ends_growing() -> None:
    generator = random.Random(1)
    pauses = [pause_after(tries, generator) for tries in range(1, 30)]
    assert 4 <= pauses[0] <= 6
    assert all(later > sooner for sooner, later in itertools.pairwise(pauses[:9]))
    assert max(pauses) <= 3600 * 1.2


def test_secrets() -> None:
    assert secret_bytes(SECRET) == b"a secret of the house"
    assert secret_bytes("plain words") == b"plain words"
    with pytest.raises(ValueError, match="webhook_secret"):
        secret_bytes("whsec_%%%")


def test_one_end_is_one_event() -> None:
    assert event_of(ended()) == event_of(ended())
    assert event_of(ended()).id != event_of(ended(JobStatus.FAILED)).id


async def test_a_job_without_receivers_is_done_with_at_once(caller: Caller) -> None:
    counted: list[str] = []
    told = Webhooks(WebhookOptions(), caller, clock=time.time, count=counted.append)
    assert await told.tell(ended(), 1) is None
    assert await told.tell(replace(ended(), webhook="http://10.0.0.1/x"), 1) is None
    assert counted == ["forbidden"], "its address may not be called: no use in trying again"
