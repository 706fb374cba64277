"""`antiphon worker`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def worker(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="The configuration file. Default: antiphon.toml in this folder, if it is there.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Answer /metrics, /health and /livez on this port of server.host; 0 takes a free one. Default: no port."),
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error (server.log_level).")] = None,
) -> None:
    """Make pictures and clips for servers that share its job queue, until told to stop.

    It loads the engines of server.media and takes jobs from the database in [jobs]; as many workers as you like may share it, on several
    machines when it is on PostgreSQL and the files in a bucket. SIGTERM and Ctrl-C end it in order: what runs goes back into the queue.
    """
    from ..engines.errors import EngineError
    from .errors import SettingsError
    from .logs import configure_logs
    from .settings import load_settings
    from .worker import work

    tables: dict[str, Any] = {"jobs": {"work": True}}
    if log_level is not None:
        tables["server"] = {"log_level": log_level}
    try:
        settings = load_settings(config, **tables)
        configure_logs(settings.server.log_level, settings.server.log_format)
        work(settings, port=port, announce=lambda line: print(line, flush=True))
    except (SettingsError, EngineError) as error:
        typer.echo(f"antiphon: {error}", err=True)
        raise typer.Exit(1) from None
