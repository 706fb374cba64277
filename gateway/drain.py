"""An orderly end: no new sessions, running answers finish, everyone is told, connections close with 1012."""

from __future__ import annotations

import asyncio
import time

from ..sessions.inbound import EndSession, Warn
from .logs import logger
from .service import Gateway

log = logger("gateway.drain")

STEP = 0.05
LINGER = 6.0
"""Seconds that connections have to close once their sessions have ended; a reader that stopped is cut before that."""
CLOSE_CODE = 1012
"""Service restart: stock clients connect again on it."""


async def drain(gateway: Gateway, deadline_s: float) -> None:
    """Let every session go: idle ones at once, busy ones when they come to rest, all after `deadline_s` seconds."""
    gateway.draining = True
    sessions = gateway.sessions
    sessions.close_waiting_room()
    log.info("draining", sessions=len(sessions), deadline_s=deadline_s)
    warning = Warn("draining", f"The server stops; the connection closes within {deadline_s:g} seconds.", deadline_s)
    for live in sessions.all():
        live.feed(warning)
    ends = time.monotonic() + deadline_s
    if gateway.jobs is not None:
        await gateway.jobs.stop_working()
    while len(sessions):  # also those that were being admitted when the drain began
        now = time.monotonic()
        overdue = now >= ends
        for live in sessions.all():
            if overdue or not live.busy(now):
                live.feed(EndSession("server_draining", "The server stops.", CLOSE_CODE))
        if overdue:
            break
        await asyncio.sleep(STEP)
    if not await sessions.emptied(LINGER):
        log.warning("sessions left behind", sessions=len(sessions))
