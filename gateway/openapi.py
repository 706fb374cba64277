"""The API's description: what each route may answer, the bodies that are read by hand, and links from an order to what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from .media.schemas import ErrorBody

WHAT = {
    400: "Something in the request is wrong; `param` names it.",
    401: "The API key is missing or wrong.",
    403: "A web page of another origin asks.",
    404: "There is no such thing, or it belongs to another key.",
    409: "It clashes with what is there: an idempotency key with another body, a job that is not in the state for this.",
    413: "The body is too large.",
    415: "The content type is not understood.",
    416: "The range lies outside the file.",
    429: "The key has too many unfinished jobs, or submits too fast; `retry-after` says when to try again.",
    500: "The job failed for a reason of the server's.",
    503: "The server starts, stops or cannot reach its store; `retry-after` says when to try again.",
    507: "There is no room for the file.",
    504: "The job was not done in the time that a call may wait, and was cancelled.",
}
COMMON = (401, 403, 503)
BINARY = {"schema": {"type": "string", "format": "binary"}}


def answers(*errors: int, **content: Mapping[str, Any]) -> dict[int | str, dict[str, Any]]:
    """A route's `responses`: these errors and the common ones, each with the one body."""
    return {status: {"model": ErrorBody, "description": WHAT[status]} for status in sorted({*errors, *COMMON})}


def gives(model: type[BaseModel], description: str = "", links: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A good answer."""
    return {"model": model, "description": description or (model.__doc__ or "").strip(), **({"links": dict(links)} if links else {})}


def gives_file(*media_types: str) -> dict[str, Any]:
    """A good answer that is a file."""
    return {"description": "The file.", "content": dict.fromkeys(media_types, BINARY)}


def takes(model: type[BaseModel], files: Iterable[str] = (), *, lists: Iterable[str] = (), json: bool = True) -> dict[str, Any]:
    """A route's `openapi_extra` for a body that the route reads by hand: JSON, and a form with `files` (in `lists`: several)."""
    schema = _inline(model.model_json_schema())
    form = {**schema, "properties": {**schema["properties"]}}
    for name in (*files, *lists):
        one = {"type": "string", "format": "binary"}
        form["properties"][name] = {"type": "array", "items": one} if name in lists else one
    content: dict[str, Any] = {"multipart/form-data": {"schema": form}}
    if json:
        content = {"application/json": {"schema": schema}, **content}
    return {"requestBody": {"required": True, "content": content}}


def links_from(id_of: str, parameter: str, operations: Iterable[str]) -> dict[str, Any]:
    """Links from a good answer to these operations, with the answer's `id_of` as their `parameter`."""
    return {operation: {"operationId": operation, "parameters": {parameter: f"$response.body#/{id_of}"}} for operation in operations}


def describe_errors(app: FastAPI) -> None:
    """Have the description say what is true: a wrong request gets a 400 in our shape, not FastAPI's own 422."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        fresh = app.openapi_schema is None
        schema = describe()
        if fresh:
            for path in schema["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
                    operation["responses"].setdefault("400", _error(400))
            components = schema.setdefault("components", {}).setdefault("schemas", {})
            for name in ("HTTPValidationError", "ValidationError"):
                components.pop(name, None)
            for name, part in _inline_parts().items():
                components.setdefault(name, part)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


def _error(status: int) -> dict[str, Any]:
    return {"description": WHAT[status], "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}}


def _inline_parts() -> dict[str, Any]:
    schema = ErrorBody.model_json_schema(ref_template="#/components/schemas/{model}")
    parts: dict[str, Any] = schema.pop("$defs")
    return {**parts, "ErrorBody": schema}


def _inline(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without references: it stands in the middle of another document."""
    parts = schema.pop("$defs", {})

    def walk(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return walk(parts[node["$ref"].rpartition("/")[2]])
            return {key: walk(value) for key, value in node.items()}
        if isinstance(node, list):
            return [walk(value) for value in node]
        return node

    inlined: dict[str, Any] = walk(schema)
    return inlined
