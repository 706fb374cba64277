"""Runs the app: one listening socket, one event loop, and an orderly end on SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import uvicorn
from fastapi import FastAPI

from .app import create_app
from .drain import drain
from .errors import SettingsError
from .logs import logger
from .routes_robot import openpi_app
from .service import Gateway
from .settings import Settings
from .transports.uvicorn_http import BoundedHttp
from .transports.uvicorn_socket import DirectWebSocket

log = logger("gateway.server")

NOTSENT_LOWAT = 16 * 1024
"""Bytes that the kernel may hold unsent for one connection before it says "full": a quarter of a second of audio."""
BACKLOG = 512
SHUTDOWN_TIMEOUT = 10
"""Seconds that HTTP requests have to end once every session is closed."""


class UvicornServer(uvicorn.Server):
    """uvicorn without its signal handlers: it would close every WebSocket at once, we drain first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int, key: str = "server.port") -> socket.socket:
    """A listening socket whose connections send small packets at once and queue little in the kernel.

    `key`: the setting that names the port. Raises `SettingsError` when the address cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_NOTSENT_LOWAT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOTSENT_LOWAT)
            sock.bind(address)
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        raise SettingsError(f"Cannot listen on {host}:{port}: {error.strerror or error}. Choose another server.host or {key}.") from None
    return sock


def base_url(sock: socket.socket) -> str:
    """Where a client on this machine finds the server."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it exists."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def serve(settings: Settings, *, ready_file: Path | None = None) -> None:
    """Serve until told to stop. Prints one line to stdout when ready. Raises `SettingsError` or `EngineError`."""
    sock = listen(settings.server.host, settings.server.port)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(settings, sock, ready_file))
    finally:
        sock.close()
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)


async def _serve(settings: Settings, sock: socket.socket, ready_file: Path | None) -> None:
    stop = asyncio.Event()
    app = create_app(settings)
    with stop_on_signals(stop):
        await serve_until(stop, app, sock, on_ready=lambda url: _announce(url, ready_file, app.state.gateway.openpi_url))
    log.info("stopped")


async def serve_until(stop: asyncio.Event, app: FastAPI, sock: socket.socket, *, on_ready: Callable[[str], None]) -> None:
    """Serve `app` on `sock` until `stop` is set, then drain. `on_ready` is given the base URL once sessions are taken.

    Raises `EngineError` when an engine cannot be opened.
    """
    gateway: Gateway = app.state.gateway
    settings = gateway.settings
    servers = [(UvicornServer(_config(app, settings, lifespan="on")), sock)]
    if settings.robots.openpi_port >= 0:
        robots = listen(settings.server.host, settings.robots.openpi_port, "robots.openpi_port")
        servers.append((UvicornServer(_config(openpi_app(gateway), settings, lifespan="off")), robots))
        gateway.openpi_url = base_url(robots).replace("http", "ws", 1)
    # The engines are opened here and not in uvicorn's lifespan, so that their errors reach the caller as they are.
    try:
        await gateway.open()
    except BaseException:
        for _, extra in servers[1:]:
            extra.close()
        raise
    serving = [asyncio.create_task(server.serve(sockets=[own]), name="uvicorn") for server, own in servers]
    stopping = asyncio.create_task(stop.wait(), name="stop signal")
    try:
        while not all(server.started for server, _ in servers) and not any(task.done() for task in serving):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # uvicorn tells nobody
        if not any(task.done() for task in serving):
            on_ready(base_url(sock))
            await asyncio.wait((*serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            await drain(gateway, settings.server.drain_s)
    finally:
        for server, _ in servers:
            server.should_exit = True
        stopping.cancel()
        await asyncio.gather(*serving)
        await gateway.close()


def _config(app: FastAPI, settings: Settings, *, lifespan: Literal["on", "off"]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedHttp,
        ws=DirectWebSocket,
        ws_max_size=2 * settings.websocket_limits().max_event_bytes,
        ws_per_message_deflate=False,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
        lifespan=lifespan,
    )


def _announce(url: str, ready_file: Path | None, openpi_url: str) -> None:
    log.info("listening", url=url, pid=os.getpid(), **({"openpi": openpi_url} if openpi_url else {}))
    if ready_file is not None:
        partial = ready_file.with_name(ready_file.name + ".part")
        partial.write_text(
            json.dumps({"url": url, "pid": os.getpid(), **({"openpi": openpi_url} if openpi_url else {})}) + "\n", encoding="utf-8"
        )
        partial.replace(ready_file)
    if openpi_url:
        print(f"antiphon: OpenPI clients find robots' policies at {openpi_url}", flush=True)
    print(f"antiphon listening on {url}", flush=True)


@contextlib.contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """The first signal asks for an orderly end, the second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def received(number: signal.Signals) -> None:
        if stop.is_set():
            print("antiphon: second signal, leaving at once", file=sys.stderr, flush=True)
            os._exit(128 + number)
        log.info("stopping", signal=number.name)
        stop.set()

    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, received, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


__all__ = ["UvicornServer", "base_url", "listen", "loop_factory", "serve", "serve_until", "stop_on_signals"]
