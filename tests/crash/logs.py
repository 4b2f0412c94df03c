"""Finds what no part may log: an error that no fault explains, or a traceback of any origin."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.crash.history import History

TRACEBACK = "Traceback (most recent call last)"
_FRAME = " \n|+-"  # around the exceptions in a group
ERRORS = ("error", "critical")
# The start of the event of each error that a fault explains, and why it is expected.
EXPECTED = {
    "storage.full": "the API responds with 507 while the disk is full",
    "consumer: Cannot connect to": "Celery logs it when the broker is unavailable, and tries again",
    "Frequent restarts detected": "Celery pauses for a second between attempts to connect to the broker",
    "UNABLE TO RESTORE": "kombu logs it when a notifier is stopped while the broker is away; the hints are written again",
    "EMERGENCY DUMP STATE": "the same",
    "Couldn't ack": "kombu logs it with a traceback when the connection to the broker is lost before a hint is acknowledged",
}


# Of a part that was stopped while it ended: its time for open requests is over when it goes on.
_LATE = "timeout graceful shutdown exceeded"


def judge_logs(history: History, folder: Path) -> None:
    """Count every unexpected line of every part's log."""
    stopped = [text for _, text in history.log if text.startswith("SIGSTOP")]
    for log in sorted(folder.glob("*.log")):
        late = any(log.stem in text for text in stopped)
        with log.open(errors="replace") as lines:
            for message in unexpected(lines):
                if late and _LATE in message:
                    continue
                history.wrong("unexpected_exceptions", f"{log.stem}: {message}")


def unexpected(lines: Iterable[str]) -> Iterator[str]:
    """The unexpected log lines, and the last line of each traceback, whether it is in JSON or printed."""
    last: str | None = None  # of the traceback that is being printed
    for line in lines:
        entry = _entry(line)
        if entry is None:
            inner = last is not None and line.startswith("    ")  # of an exception in a group
            if TRACEBACK in line and not inner:
                if last:
                    yield last
                last = TRACEBACK
            elif last and (said := line.strip(_FRAME)):
                last = said
            continue
        if last:
            yield last
            last = None
        traceback = str(entry.get("exception", ""))
        known = str(entry.get("event")).startswith(tuple(EXPECTED))
        if (traceback or entry.get("level") in ERRORS) and not known:
            message = traceback.strip().rpartition("\n")[2] or str(entry.get("error", ""))
            yield f"{entry.get('event')}: {message}"[:400]
    if last:
        yield last


def _entry(line: str) -> dict[str, Any] | None:
    """The entry of a log line; None for other output."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
