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
        settings = load_settings(config, **({"server": overrides} if overrides else {}))
        configure_logs(settings.server.log_level, settings.server.log_format)
        run(settings, ready_file=ready_file)
    except (SettingsError, EngineError) as error:
        typer.echo(f"antiphon: {error}", err=True)
        raise typer.Exit(1) from None
