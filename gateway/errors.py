"""Errors of the HTTP side, in the shape that OpenAI's clients expect: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import chain

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route

from ..engines.errors import EngineBusyError, EngineError, EngineUnavailableError, InvalidRequestError
from .jobs.errors import IdempotencyConflictError, JobError, JobFailedError, JobLimitError, StoreUnavailableError, UnknownCursorError


class ApiError(Exception):
    """A request that cannot be served. `message` is a sentence for the caller; `code` is stable and for programs."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = dict(headers or {})

    def response(self) -> JSONResponse:
        """The JSON answer, also used to refuse a WebSocket handshake."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        body = {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}
        return JSONResponse(body, status_code=self.status, headers=self.headers)


class SettingsError(Exception):
    """The configuration is wrong; the message names the key and what was expected."""


def from_engine(error: EngineError) -> ApiError:
    """The HTTP form of an engine's error."""
    if isinstance(error, InvalidRequestError):
        return ApiError(400, error.code, str(error))
    if isinstance(error, EngineBusyError):
        return ApiError(429, error.code, str(error), headers={"retry-after": "1"})
    if isinstance(error, EngineUnavailableError):
        return ApiError(503, error.code, str(error), headers={"retry-after": "5"})
    return ApiError(500, error.code, str(error))


def from_job(error: JobError) -> ApiError:
    """The HTTP form of an error of the job queue."""
    message = str(error)
    if isinstance(error, JobLimitError):
        return ApiError(429, error.code, message, headers={"retry-after": str(math.ceil(error.retry_after))})
    if isinstance(error, StoreUnavailableError):
        return ApiError(503, error.code, message, headers={"retry-after": str(math.ceil(error.retry_after))})
    if isinstance(error, IdempotencyConflictError):
        # Stock clients repeat a 409 by themselves; this one stays.
        return ApiError(409, error.code, message, param="Idempotency-Key", headers={"x-should-retry": "false"})
    if isinstance(error, UnknownCursorError):
        return ApiError(404, error.code, message, param="after")
    if isinstance(error, JobFailedError):
        return ApiError(507 if error.code == "storage_failed" else 500, error.code, message)
    return ApiError(400, error.code, message, param="webhook_url" if error.code == "invalid_webhook_url" else None)


def install_error_handlers(app: FastAPI, routes: Iterable[BaseRoute] = ()) -> None:
    """Give every error of `app` the one shape. `routes`: those of the app, of which a 405 says what they allow."""
    known = [route for route in routes if isinstance(route, Route)]

    async def api_error(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, ApiError)
        return error.response()

    async def engine_error(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, EngineError)
        return from_engine(error).response()

    async def job_error(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, JobError)
        return from_job(error).response()

    async def http_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
        headers = {name.lower(): value for name, value in (error.headers or {}).items()}
        if error.status_code == 405:
            # The framework names the methods of the first route only; those of the same path belong to it.
            path = next((route.path for route in known if route.matches(request.scope)[0] is not Match.NONE), None)
            allowed = chain(*(route.methods or () for route in known if route.path == path))
            headers["allow"] = ", ".join(sorted({*headers.get("allow", "").split(", "), *allowed} - {""}))
        return ApiError(error.status_code, code, str(error.detail), headers=headers).response()

    async def bad_body(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path")) or None
        code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
        return ApiError(400, code, f"{where or 'The request'}: {first['msg']}.", param=where).response()

    app.add_exception_handler(ApiError, api_error)
    app.add_exception_handler(EngineError, engine_error)
    app.add_exception_handler(JobError, job_error)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestValidationError, bad_body)
