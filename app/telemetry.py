"""Logging with structlog: one line for each event, as text for a terminal or as JSON."""

import logging
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TextIO, cast

import structlog

from app import log_filter, trace_context
from app.settings import Settings

FILE_BYTES = 10 << 20  # size of a part's log at which it replaces the previous log


def configure(settings: Settings, part: str, stream: TextIO | None = None) -> None:
    """Set up the logging of this process. Every line names `part`. An error while writing a line is ignored.

    Lines for a terminal have the time of day; all others have the date too.
    """
    out = cast(TextIO, _Unfailing(stream or sys.stderr))
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    json = settings.log_format == "json"
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        _traced,
        _naming(part, in_front=not json),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso" if json or not out.isatty() else "%H:%M:%S", utc=True),
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if json
        else structlog.dev.ConsoleRenderer(
            colors=out.isatty(),
            pad_event_to=38,
        )
    )
    structlog.configure(
        processors=[*shared, _filtered, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _filtered, renderer],
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)
    _filter_uncaught()


def log_file(data_dir: Path, part: str) -> Path:
    """The file in which `slackwater up` keeps the log of one part."""
    return data_dir / "logs" / f"{part}.log"


def old_log(file: Path) -> Path:
    """The file with the lines from before the last rotation."""
    return file.with_suffix(".log.1")


def rotate(file: Path, limit: int = FILE_BYTES) -> bool:
    """Move the content of a log file that exceeds `limit` bytes to its `old_log`. Returns whether it did.

    The writers append, so they need not reopen the file. Lines written between the copy and the truncation are lost: some
    microseconds of log.
    """
    with suppress(FileNotFoundError):
        if file.stat().st_size <= limit:
            return False
    with suppress(FileNotFoundError), file.open("r+b") as source:
        copy = file.with_suffix(".log.copy")
        with copy.open("wb") as target:
            while block := source.read(1 << 20):
                target.write(block)
        source.truncate(0)
        copy.replace(old_log(file))  # last: a reader that follows the file sees by it that the file was truncated
        return True
    return False


class _Unfailing:
    """A stream that ignores errors, for example of a closed pipe or a full disk."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            return self._stream.write(text)
        return 0

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()


def _traced(logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A processor that adds the trace id of the work that the line is about, if it has one."""
    trace_id = trace_context.current.get()
    if trace_id is not None:
        event.setdefault("trace_id", trace_id)
    return event


def _filtered(logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A processor after which a line has nothing that a log may not hold. It comes last before the line is written."""
    error = event.pop("exc_info", None)
    if error:
        found = error if isinstance(error, BaseException) else error[1] if isinstance(error, tuple) else sys.exception()
        if found is not None:
            event["exception"] = log_filter.traceback_of(found)
    return {name: log_filter.passed(value, name) for name, value in event.items()}


def _filter_uncaught() -> None:
    """What nobody catches is written to stderr, which `slackwater up` keeps in a log file. Hooks that others have set stay."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = lambda kind, error, place: _write(error)
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = lambda given: _write(given.exc_value)
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = lambda given: _write(given.exc_value)


def _write(error: BaseException | None) -> None:
    if error is not None and not isinstance(error, SystemExit) and sys.stderr is not None:
        _Unfailing(sys.stderr).write(log_filter.traceback_of(error) + "\n")


def _naming(part: str, *, in_front: bool) -> structlog.typing.Processor:
    """A processor that names the part in every line of every thread: as a column in text, as a key in JSON."""

    def name(logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if in_front:
            event["event"] = f"{part:<13} {event['event']}"
        else:
            event["part"] = part
        return event

    return name
