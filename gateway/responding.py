"""Runs response pipelines for one session: start, hold, stop; every chunk goes back to the session with its response and epoch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from ..engines.errors import EngineError
from ..engines.messages import (
    AudioChunk,
    ChatBody,
    ChatMessage,
    Finished,
    ResponseBody,
    StageMark,
    TextChunk,
    Tool,
    ToolCall,
    ToolCallChunk,
)
from ..engines.response import ResponseChunk, ResponseStream
from ..sessions.commands import Message, StartResponse
from ..sessions.inbound import ResponseAudio, ResponseEnded, ResponseFailed, ResponseText, ResponseToolCall
from ..sessions.timeline import TimedWord
from .logs import logger
from .workbench import Workbench

log = logger("gateway.responding")


@dataclass(slots=True)
class _Run:
    """A running response. `going` is cleared while the session holds it back."""

    command: StartResponse
    stream: ResponseStream
    going: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Responder:
    """The running responses of one session. Bound: the session starts at most `max_responses` at once."""

    def __init__(self, bench: Workbench, *, on_stage: Callable[[str, StageMark], None], voices: tuple[str, ...]) -> None:
        self._bench = bench
        self._on_stage = on_stage
        self._voices = voices
        self._runs: dict[str, _Run] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def start(self, command: StartResponse) -> None:
        """Begin to make a response."""
        run = _Run(command, self._stream(command))
        run.going.set()
        self._runs[command.response_id] = run
        run.task = self._bench.tasks.start(
            self._run(run), name=f"response {command.response_id}", on_crash=lambda error: self._crashed(command, error)
        )

    def hold(self, response_id: str, hold: bool) -> None:
        """Stop or go on reading the pipeline; what is not read, the engines do not make (their streams are bounded)."""
        run = self._runs.get(response_id)
        if run is not None:
            (run.going.clear if hold else run.going.set)()

    def stop(self, response_id: str) -> None:
        """Abort on every stage: nothing of this response comes back after this call."""
        run = self._runs.pop(response_id, None)
        if run is not None and run.task is not None:
            run.stream.abort()
            run.task.cancel()

    def _crashed(self, command: StartResponse, error: BaseException) -> None:
        log.error("response crashed", response=command.response_id, session=self._bench.session_id, exc_info=error)
        if self._runs.pop(command.response_id, None) is not None:
            message = "The server failed while making this response."
            self._bench.feed(ResponseFailed(command.response_id, command.epoch, "internal_error", message))

    def _stream(self, command: StartResponse) -> ResponseStream:
        voice = command.voice if command.voice in self._voices else None
        body = ResponseBody(chat=_chat_body(command), audio=command.audio, voice=voice, speed=command.speed)
        return self._bench.orchestrator.respond(
            self._bench.pipeline,
            body,
            request_id=command.response_id,
            session_id=self._bench.session_id,
            epoch=command.epoch,
            affinity=self._bench.session_id,
        )

    async def _run(self, run: _Run) -> None:
        command = run.command
        finished = False
        try:
            async with contextlib.aclosing(run.stream):
                async for chunk in run.stream:
                    await run.going.wait()
                    self._report(command, chunk)
                    finished = finished or isinstance(chunk, Finished)
            if not finished:
                message = "The pipeline ended without finishing the response."
                self._bench.feed(ResponseFailed(command.response_id, command.epoch, "engine_error", message))
        except EngineError as error:
            log.warning("response failed", response=command.response_id, session=self._bench.session_id, code=error.code, error=str(error))
            self._bench.feed(ResponseFailed(command.response_id, command.epoch, error.code, str(error)))
        finally:
            if self._runs.get(command.response_id) is run:
                del self._runs[command.response_id]

    def _report(self, command: StartResponse, chunk: ResponseChunk) -> None:
        response_id, epoch = command.response_id, command.epoch
        match chunk:
            case AudioChunk(pcm=pcm, transcript=transcript, words=words):
                timed = tuple(TimedWord(word.text, word.start_ms, word.end_ms) for word in words)
                self._bench.feed(ResponseAudio(response_id=response_id, epoch=epoch, pcm=pcm, transcript=transcript, words=timed))
            case TextChunk(text=text):
                self._bench.feed(ResponseText(response_id, epoch, text))
            case ToolCallChunk(index=index, call_id=call_id, name=name, arguments=arguments):
                call = ResponseToolCall(response_id=response_id, epoch=epoch, index=index, call_id=call_id, name=name, arguments=arguments)
                self._bench.feed(call)
            case StageMark():
                self._on_stage(response_id, chunk)
            case Finished(reason=reason, usage=usage):
                self._bench.feed(
                    ResponseEnded(
                        response_id=response_id,
                        epoch=epoch,
                        reason=reason,
                        input_tokens=usage.input_tokens,
                        output_tokens=usage.output_tokens,
                        cached_tokens=usage.cached_tokens,
                    )
                )


def _chat_body(command: StartResponse) -> ChatBody:
    return ChatBody(
        messages=tuple(_chat_message(message) for message in command.messages),
        tools=tuple(
            Tool(name=tool["name"], description=tool.get("description") or "", parameters=tool.get("parameters") or {})
            for tool in command.tools
        ),
        tool_choice=command.tool_choice,
        parallel_tool_calls=command.parallel_tool_calls,
        max_tokens=command.max_output_tokens,
    )


def _chat_message(message: Message) -> ChatMessage:
    calls = tuple(ToolCall(call_id, name, arguments) for call_id, name, arguments in message.tool_calls)
    return ChatMessage(role=message.role, text=message.text, tool_calls=calls, call_id=message.call_id)
