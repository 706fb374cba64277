"""Tells others that a job has ended: OpenAI's webhook scheme (Standard Webhooks), signed, tried again until it was heard.

The end of a job and the wish to tell it are one write (`JobStore.untold`), so a crash loses no webhook; it may make one arrive twice, with
the same `webhook-id`, by which receivers know it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..logs import logger
from .callers import Caller, InvalidWebhookError
from .job import Job

log = logger("gateway.webhooks")

DEADLINE = 15.0
"""Seconds that a receiver has to answer."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 3600.0
"""Seconds between tries: doubled each time, with jitter."""
GONE = 410
"""A receiver that answers so is not told of this event again."""
REMEMBERED = 10_000
"""Deliveries that are remembered as heard, so that one deaf receiver does not make the others hear everything again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What is told: the same id, type and body each time it is tried."""

    id: str
    type: str
    body: bytes


def event_of(job: Job) -> Event:
    """The event of an ended job."""
    event_id = "evt_" + hashlib.sha256(f"{job.id} {job.status.value}".encode()).hexdigest()[:32]
    kind = f"{job.kind.value}.{job.status.value}"
    payload = {"id": event_id, "object": "event", "created_at": int(job.finished_at or 0), "type": kind, "data": {"id": job.id}}
    return Event(id=event_id, type=kind, body=json.dumps(payload, separators=(",", ":")).encode())


def secret_bytes(secret: str) -> bytes:
    """The key in a secret: of "whsec_<base64>" the decoded part, of any other text its UTF-8. Raises `ValueError`."""
    if not secret.startswith("whsec_"):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error as error:
        raise ValueError(f"jobs.webhook_secret begins with 'whsec_', but what follows is no base64: {error}") from None


def signed_headers(event: Event, key: bytes, now: float) -> dict[str, str]:
    """The headers that go with an event's body at `now` (Unix seconds); without a key it is not signed."""
    moment = str(int(now))
    headers = {"content-type": "application/json", "user-agent": "antiphon", "webhook-id": event.id, "webhook-timestamp": moment}
    if key:
        digest = hmac.new(key, f"{event.id}.{moment}.".encode() + event.body, hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return headers


def pause_after(tries: int, generator: random.Random) -> float:
    """Seconds to wait after so many failed tries."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(tries - 1, 16)) * generator.uniform(0.8, 1.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOptions:
    """`urls`: the operator's own, told of every job. `private`: clients may name addresses of private networks and of this machine."""

    urls: tuple[str, ...] = ()
    secret: str = ""
    attempts: int = 8
    private: bool = False


class Webhooks:
    """Delivers the events of ended jobs. `count(outcome)` is told of each try: delivered, failed, refused (the receiver is gone), forbidden
    (an address that may not be called) or gave_up."""

    def __init__(
        self,
        options: WebhookOptions,
        caller: Caller,
        *,
        clock: Callable[[], float],
        count: Callable[[str], None],
        generator: random.Random | None = None,
    ) -> None:
        self._options = options
        self._key = secret_bytes(options.secret)
        self._caller = caller
        self._clock = clock
        self._count = count
        self._generator = generator or random.Random()
        self._heard: OrderedDict[tuple[str, str], None] = OrderedDict()

    def receivers(self, job: Job) -> tuple[str, ...]:
        """Who is to be told of a job."""
        own = (job.webhook,) if job.webhook is not None and job.webhook not in self._options.urls else ()
        return (*self._options.urls, *own)

    async def tell(self, job: Job, tries: int) -> float | None:
        """Tell everybody who has not heard it yet; `tries` counts this time. None: it is done, for better or worse; else try again after so
        many seconds."""
        event = event_of(job)
        urls = self.receivers(job)
        heard = await asyncio.gather(*(self._told(url, event) for url in urls))
        waiting = [url for url, known in zip(urls, heard, strict=True) if not known]
        if not waiting:
            return None
        if tries >= self._options.attempts:
            for url in waiting:
                self._count("gave_up")
                log.error("webhook given up", url=_shown(url), webhook=event.id, type=event.type, tries=tries)
            return None
        return pause_after(tries, self._generator)

    async def _told(self, url: str, event: Event) -> bool:
        """Try one receiver. True: it needs no further try."""
        if (event.id, url) in self._heard:
            return True
        outcome, detail = await self._try(url, event)
        self._count(outcome)
        if outcome == "failed":
            log.warning("webhook not heard", url=_shown(url), webhook=event.id, reason=detail)
            return False
        if outcome != "delivered":
            log.warning("webhook ended", url=_shown(url), webhook=event.id, outcome=outcome, reason=detail)
        self._heard[event.id, url] = None
        while len(self._heard) > REMEMBERED:
            self._heard.popitem(last=False)
        return True

    async def _try(self, url: str, event: Event) -> tuple[str, str]:
        private = self._options.private or url in self._options.urls
        headers = signed_headers(event, self._key, self._clock())
        try:
            status = await self._caller.post(url, event.body, headers, private=private, seconds=DEADLINE)
        except InvalidWebhookError as error:
            return "forbidden", str(error)
        except OSError as error:
            return "failed", str(error) or type(error).__name__
        if 200 <= status < 300:
            return "delivered", ""
        return ("refused" if status == GONE else "failed"), f"it answered {status}"


def _shown(url: str) -> str:
    """A URL for the log, without what may be a secret in it."""
    return url.partition("?")[0][:200]


def options_of(settings: Any) -> WebhookOptions:
    """The options in `[jobs]` of the configuration."""
    return WebhookOptions(
        urls=tuple(settings.webhooks),
        secret=settings.webhook_secret,
        attempts=settings.webhook_attempts,
        private=settings.webhook_private,
    )
