"""An answer of the robot session as what leaves: openpi's reply, or the error that its client expects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...codecs import msgpack_numpy
from ...engines.messages import ActionChunk
from ...robot.session import Answer, RobotSession, Status
from ...robot.wire import RESET_DONE

ERROR = 1011
"""Close code after an error in a text frame; what openpi's own server closes with."""
MAX_REASON = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A chunk that has passed every check, and how long it took from the observation to here."""

    actions: npt.NDArray[np.float32]
    made: ActionChunk
    infer_ms: float


@dataclass(frozen=True, slots=True)
class Failure:
    """The end of a connection: a sentence in a text frame ("": none), then the close code and its reason."""

    close_code: int
    code: str
    message: str

    @property
    def text(self) -> str:
        return f"{self.code}: {self.message}"

    @property
    def reason(self) -> str:
        """What fits into a close frame."""
        return self.text.encode()[:MAX_REASON].decode(errors="ignore")


def render(answer: Answer, session: RobotSession, previous_ms: float | None) -> bytes | Failure:
    """The bytes of a reply. A request without a sequence number comes from a client that takes every binary frame for a chunk: it is told
    of errors as openpi's server does, by a text frame, after which the connection closes."""
    marked = answer.request.marks.sequence is not None
    if not marked and answer.status in (Status.REFUSED, Status.FAILED):
        return Failure(ERROR, answer.code, answer.message)
    if not marked and session.ended is not None and answer.status is Status.FENCED:
        return Failure(session.ended.close_code, answer.code, answer.message)
    return msgpack_numpy.pack(_reply(answer, session, previous_ms))


def _reply(answer: Answer, session: RobotSession, previous_ms: float | None) -> dict[str, Any]:
    echo: dict[str, Any] = {**answer.request.marks.echo(), "session_id": session.id, "epoch": answer.epoch}
    reply: dict[str, Any] = {"echo": echo}
    if session.warning:
        reply["warning"], session.warning = session.warning, ""
    if answer.status is Status.CHUNK and isinstance(answer.chunk, Finished):
        made = answer.chunk.made
        echo |= {"chunk_id": answer.chunk_id, "seed": made.seed, "prefix": made.prefix}
        timing = {"infer_ms": answer.chunk.infer_ms, "queue_ms": made.wait_ms}
        if previous_ms is not None:
            timing["prev_total_ms"] = previous_ms
        policy = {"infer_ms": made.infer_ms, "steps": made.steps, "batch": made.batch}
        return {"actions": answer.chunk.actions, "policy_timing": policy, "server_timing": timing, **reply}
    if answer.status is Status.RESET:
        return {"status": RESET_DONE, **reply}
    return {"status": answer.status.value, "code": answer.code, "message": answer.message, **reply}
