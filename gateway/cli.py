"""The server's commands: `antiphon serve` and `antiphon replay`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def serve(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="The configuration file. Default: antiphon.toml in this folder, if it is there.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (server.host). Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on (server.port); 0 takes a free one. Default: 8765.")] = None,
    pipeline: Annotated[
        list[str] | None, typer.Option(help="Serve only this pipeline (server.pipelines); may be given several times.")
    ] = None,
    openpi_port: Annotated[
        int | None, typer.Option(help="A port for OpenPI clients, which know no paths (robots.openpi_port); 0 takes a free one.")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error (server.log_level).")] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="Write the server's address and process id to this file, as JSON, once it is ready.")
    ] = None,
) -> None:
    """Run the gateway until it is told to stop.

    Prints one line, "antiphon listening on http://HOST:PORT", when it takes sessions. SIGTERM and Ctrl-C end it in order: no
    new sessions, running answers finish, connections close with 1012. A second signal ends it at once.
    """
    from ..engines.errors import EngineError
    from .errors import SettingsError
    from .logs import configure_logs
    from .server import serve as run
    from .settings import load_settings

    chosen = {"host": host, "port": port, "pipelines": tuple(pipeline) if pipeline else None, "log_level": log_level}
    overrides: dict[str, Any] = {key: value for key, value in chosen.items() if value is not None}
    try:
        tables: dict[str, Any] = {"server": overrides} if overrides else {}
        if openpi_port is not None:
            tables["robots"] = {"openpi_port": openpi_port}
        settings = load_settings(config, **tables)
        configure_logs(settings.server.log_level, settings.server.log_format)
        run(settings, ready_file=ready_file)
    except (SettingsError, EngineError) as error:
        typer.echo(f"antiphon: {error}", err=True)
        raise typer.Exit(1) from None


def replay(
    recording: Annotated[Path, typer.Argument(help="A recording: a .antiphon file from the recordings folder.")],
    show: Annotated[bool, typer.Option("--show", help="Print each step: what went in, and the types of what came out.")] = False,
) -> None:
    """Run a recorded session through the session core again and compare what comes out, byte for byte.

    Exits with 0 when everything is the same, with 1 and the first difference when it is not.
    """
    from ..sessions.errors import BadRecording
    from ..sessions.recording import read_recording
    from ..sessions.recording import replay as run

    try:
        header, steps = read_recording(recording.read_bytes())
        report = run(header, steps)
    except OSError as error:
        typer.echo(f"antiphon: {recording} cannot be read: {error.strerror}", err=True)
        raise typer.Exit(2) from None
    except BadRecording as error:
        typer.echo(f"antiphon: {recording}: {error}", err=True)
        raise typer.Exit(2) from None
    if show:
        _show(steps)
    if report.first_difference is not None:
        typer.echo(f"{header.session_id}: the replay differs at {report.first_difference}", err=True)
        raise typer.Exit(1)
    typer.echo(f"{header.session_id}: {report.steps} steps, {report.events} events, all the same byte for byte")


def _show(steps: list[Any]) -> None:
    """One line a step; times count from the first."""
    import json

    for number, step in enumerate(steps):
        inbound = type(step.inbound).__name__ if step.inbound is not None else "open"
        sent = ", ".join(json.loads(event)["type"] for event in step.outbound)
        typer.echo(f"{number:6}  {step.now - steps[0].now:9.3f} s  {inbound:18}  {sent}")


def speak(
    text: Annotated[str, typer.Argument(help="What to say.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The WAV file to write (24 kHz, mono).")] = Path("speech.wav"),
    engine: Annotated[str, typer.Option(help="The speech engine, by its name in the configuration.")] = "hibari",
    voice: Annotated[str, typer.Option(help="One of the engine's voices. Default: its first.")] = "",
    speed: Annotated[float, typer.Option(help="How fast, 1 being natural.", min=0.25, max=4.0)] = 1.0,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="The configuration file.")] = None,
) -> None:
    """Say a text with one of the speech engines, without a server, into a WAV file."""
    import asyncio

    from ..codecs import wav
    from ..engines.errors import EngineError
    from ..engines.pool import EnginePool
    from ..engines.registry import build_engine
    from .errors import SettingsError
    from .settings import load_settings
    from .speaking import say

    async def make() -> bytes:
        table = load_settings(config).engines.get(engine)
        if table is None:
            raise SettingsError(f"There is no [engines.{engine}] in the configuration.")
        pool = EnginePool()
        pool.add(engine, build_engine(table.kind, engine, table.options))
        await pool.open()
        try:
            return b"".join([pcm async for pcm in say(pool, engine, text, voice=voice, speed=speed)])
        finally:
            await pool.close()

    try:
        wav.write(out, asyncio.run(make()))
    except (SettingsError, EngineError, OSError) as error:
        typer.echo(f"antiphon: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(str(out))
