"""The OpenAI chat-completions wire, as llama.cpp and every compatible server speak it: payloads out, streamed deltas in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..messages import ChatBody, ChatMessage, EngineChunk, Finished, TextChunk, Tool, ToolCallChunk, Usage

_REASONS = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


def message_payload(message: ChatMessage) -> dict[str, Any]:
    """A message as the wire has it."""
    payload: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.tool_calls:
        payload["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
        payload["content"] = message.text or None
    if message.call_id is not None:
        payload["tool_call_id"] = message.call_id
    return payload


def tool_payload(tool: Tool) -> dict[str, Any]:
    """A function as the wire has it."""
    parameters = tool.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": parameters}}


def named_tool(body: ChatBody) -> str | None:
    """The function that `tool_choice` demands by name, if it does."""
    return body.tool_choice.removeprefix("function:") if body.tool_choice.startswith("function:") else None


@dataclass(slots=True)
class DeltaReader:
    """Turns the `data:` objects of one streamed completion into chunks; `finished()` is the last chunk."""

    reason: str = "stop"
    usage: Usage = field(default_factory=Usage)
    saw_tool_call: bool = False

    def read(self, event: dict[str, Any]) -> list[EngineChunk]:
        """The chunks in one event."""
        chunks: list[EngineChunk] = []
        usage = event.get("usage")
        if usage:
            details = usage.get("prompt_tokens_details") or {}
            self.usage = Usage(
                input_tokens=usage.get("prompt_tokens") or 0,
                output_tokens=usage.get("completion_tokens") or 0,
                cached_tokens=details.get("cached_tokens") or 0,
            )
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            if delta.get("content"):
                chunks.append(TextChunk(delta["content"]))
            for call in delta.get("tool_calls") or ():
                function = call.get("function") or {}
                self.saw_tool_call = True
                chunks.append(
                    ToolCallChunk(
                        index=call.get("index") or 0,
                        call_id=call.get("id") or "",
                        name=function.get("name") or "",
                        arguments=function.get("arguments") or "",
                    )
                )
            if choice.get("finish_reason"):
                self.reason = _REASONS.get(choice["finish_reason"], "stop")
        return chunks

    def finished(self) -> Finished:
        """The end of the stream."""
        reason = "tool_calls" if self.saw_tool_call and self.reason == "stop" else self.reason
        return Finished(reason=reason, usage=self.usage)
