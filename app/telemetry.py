"""Logs: structlog, one line per event, readable in a terminal or as JSON."""

import logging
import sys
from typing import TextIO

import structlog

from app.settings import Settings


def configure(settings: Settings, part: str, stream: TextIO | None = None) -> None:
    """Set up logging of this process; `part` is named in every line."""
    out = stream or sys.stderr
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    json = settings.log_format == "json"
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        _naming(part, in_front=not json),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if settings.log_format == "console" else "iso", utc=True),
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if json
        else structlog.dev.ConsoleRenderer(
            colors=out.isatty(),
            pad_event_to=38,
            exception_formatter=structlog.dev.plain_traceback,  # the default shows local variables: keys, prompts
        )
    )
    errors: list[structlog.typing.Processor] = [structlog.processors.format_exc_info] if json else []
    structlog.configure(
        processors=[*shared, *errors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *errors, renderer],
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)
    # Every part says once itself that the database is away; the pool would say it for each connection and try.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)


def _naming(part: str, *, in_front: bool) -> structlog.typing.Processor:
    """Name the part in every line, whatever thread it comes from: as a column in a terminal, as a key in JSON."""

    def name(logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if in_front:
            event["event"] = f"{part:<13} {event['event']}"
        else:
            event["part"] = part
        return event

    return name
