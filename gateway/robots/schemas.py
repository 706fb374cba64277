"""What the operator's routes say of robots, for the API's description. `conductor` and `timeline` make it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class RoundObject(BaseModel):
    """Arrival of an observation to its chunk at the socket, in milliseconds, over the last `count` chunks; null without any."""

    p50: float | None
    p99: float | None
    count: int


class EpisodesObject(BaseModel):
    """Episodes that ended, by what the robot told of them."""

    success: int
    failure: int
    unknown: int


class FenceObject(BaseModel):
    """A fence: `epoch` began `at`, in seconds from `now` (negative: past)."""

    epoch: int
    at: float


class ChunkObject(BaseModel):
    """A request of a robot and what became of it. Times in seconds from `now`, negative: past; null: not yet, or never.

    It `arrived`, the policy had `begun` to work on it, the chunk was `made`, the answer `left`. `epoch`: the one that it was asked in.
    """

    number: int
    sequence: int | None
    episode: str | int | None
    epoch: int
    chunk_id: int | None
    status: Literal["waiting", "working", "chunk", "superseded", "late", "fenced", "refused", "failed"]
    arrived: float
    begun: float | None
    made: float | None
    left: float | None
    deadline: float | None
    prefix: int = Field(description="How many actions of the chunk before it continues.")
    batch: float | None = Field(description="The mean number of robots that shared the policy's steps.")


class RobotObject(BaseModel):
    """A robot that is connected, or whose session is kept for its return (`attached` is false then)."""

    id: str
    object: Literal["realtime.robot.report"]
    policy: str
    started_at: int
    state: Literal["inferring", "executing", "idle", "leased", "ended"]
    busy: bool
    attached: bool
    epoch: int
    episode: str | int | None
    requests: int
    answers: dict[str, int] = Field(description="Answers that left, by their status.")
    stale_results: int
    prompt: str = Field(description="The last one, cut at 200 characters.")
    rate: float = Field(description="Actions a second.")
    horizon: int = Field(description="Actions of a chunk.")
    episodes: EpisodesObject
    round_ms: RoundObject
    fences: list[FenceObject] = Field(description="The last ones, the oldest first.")
    chunks: list[ChunkObject] = Field(description="The newest requests, at most 64, the oldest first.")


class SingleRobotObject(RobotObject):
    """A robot; `now` is the server's time that its times are counted from, in Unix seconds."""

    now: float


class TotalsObject(BaseModel):
    """Of every robot since the server's start: answers by their status, episodes by their outcome."""

    answers: dict[str, int]
    episodes: EpisodesObject


class RobotList(BaseModel):
    """The robots. `now` is the server's time that all times are counted from, in Unix seconds."""

    object: Literal["list"]
    now: float
    policies: list[str] = Field(description="The policies that are served; the first is the default.")
    totals: TotalsObject
    data: list[RobotObject]
