"""Errors of the HTTP side, in the shape that OpenAI's clients expect: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ..engines.errors import EngineBusyError, EngineError, EngineUnavailableError, InvalidRequestError


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


def install_error_handlers(app: FastAPI) -> None:
    """Give every error of `app` the one shape."""

    async def api_error(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, ApiError)
        return error.response()

    async def engine_error(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, EngineError)
        return from_engine(error).response()

    async def http_error(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
        return ApiError(error.status_code, code, str(error.detail), headers=error.headers).response()

    async def bad_body(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path")) or None
        code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
        return ApiError(400, code, f"{where or 'The request'}: {first['msg']}.", param=where).response()

    app.add_exception_handler(ApiError, api_error)
    app.add_exception_handler(EngineError, engine_error)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestValidationError, bad_body)
