"""Logs: structlog to stderr, text for people and JSON lines for machines; the standard library's loggers join in."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog


def configure_logs(level: str = "info", style: str = "auto") -> None:
    """Set up logging for the process. `style`: text, json, or auto (text when stderr is a terminal)."""
    threshold = getattr(logging, level.upper())
    text = style == "text" or (style == "auto" and sys.stderr.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if not text:
        shared.append(structlog.processors.format_exc_info)
    renderer: Any = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if text else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(threshold)
    # uvicorn tells of every connection; a session's own start and end lines say more.
    logging.getLogger("uvicorn").handlers = []
    logging.getLogger("uvicorn.error").setLevel(max(threshold, logging.WARNING))
    for chatty in ("uvicorn.access", "httpx", "httpcore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def logger(name: str) -> Any:
    """A logger for a part of the gateway, such as "gateway.drain"."""
    return structlog.get_logger(f"antiphon.{name}")
