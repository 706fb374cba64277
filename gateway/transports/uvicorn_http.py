"""uvicorn's HTTP protocol with bounds: a request has so long to arrive and may be so large. (uvicorn itself waits for ever, and keeps
every header line.)
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
"""For the request line and the headers, from the connection's first moment on."""
BODY_SECONDS = 60.0
HEAD_BYTES = 64 * 1024
BODY_BYTES = 33 * 1024 * 1024
"""The largest upload that can be configured (32 MiB), and the form around it."""


class BoundedHttp(HttpToolsProtocol):
    """See the module's docstring. A request beyond a bound costs its connection, with a 400 where an answer is still possible."""

    _deadline: asyncio.TimerHandle | None = None
    _size = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._expect(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._size = 0
        self._expect(HEAD_SECONDS)

    def on_url(self, url: bytes) -> None:
        self._grow(len(url), HEAD_BYTES)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._grow(len(name) + len(value), HEAD_BYTES)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._size = 0
        self._expect(BODY_SECONDS)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self.cycle.response_complete and self._size + len(body) > BODY_BYTES:
            # It was answered before it had come in. A second answer would be taken for that of the connection's next request.
            self.transport.close()
            return
        self._grow(len(body), BODY_BYTES)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._expect(None)
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        self._expect(None)
        super().handle_websocket_upgrade()

    def _expect(self, seconds: float | None) -> None:
        """The request must have come on within so many seconds; None: nothing is waited for."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self.transport.abort)

    def _grow(self, size: int, limit: int) -> None:
        self._size += size
        if self._size > limit:
            raise OverflowError(f"a part of the request is larger than {limit} bytes")  # httptools reports it, uvicorn answers 400
