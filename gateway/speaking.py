"""Text to speech outside a conversation: clause by clause on a speech engine, in the class of work below live talk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from uuid import uuid4

from ..engines.clauses import ClauseSplitter
from ..engines.errors import InvalidRequestError
from ..engines.interface import EngineRequest, WorkClass
from ..engines.messages import AudioChunk, SpeakBody
from ..engines.pool import EnginePool
from ..engines.spoken import Clause

CALM = 10.0
"""Seconds of audio "in hand" that the clause splitter is told: nobody waits for the first word, so whole sentences are cut."""


async def say(pool: EnginePool, engine: str, text: str, *, voice: str | None = None, speed: float = 1.0) -> AsyncIterator[bytes]:
    """The text as 24 kHz mono PCM, as it is made. A voice that the engine does not have (a stock client's "alloy") is its own.

    Raises `EngineError`; `InvalidRequestError` when there is nothing to say.
    """
    known = pool.engine(engine).capabilities.voices
    splitter = ClauseSplitter()
    splitter.feed(text)
    splitter.finish()
    session_id = f"speech_{uuid4().hex}"
    number = 0
    while (piece := splitter.take(CALM)) is not None:
        clause = Clause(piece)
        if not clause.audible:
            continue
        request = EngineRequest(
            request_id=f"{session_id}:{number}",
            body=SpeakBody(text=clause.written, voice=voice if voice in known else None, speed=speed),
            session_id=session_id,
            work_class=WorkClass.INTERACTIVE,
        )
        number += 1
        async with aclosing(pool.stream(engine, request)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, AudioChunk):
                    yield chunk.pcm
    if not number:
        raise InvalidRequestError("the input has nothing in it that can be spoken")
