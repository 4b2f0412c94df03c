"""What parts must not log: an error that is not one of ours to expect, or a traceback, whoever writes it."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.crash.history import History

TRACEBACK = "Traceback (most recent call last)"
_FRAME = " \n|+-"  # around the exceptions in a group
ERRORS = ("error", "critical")
# Errors that a fault causes, by how their event begins, and why they are right.
EXPECTED = {
    "storage.full": "the API's answer 507 while the disk is full",
    "consumer: Cannot connect to": "Celery says so of a broker that is away, and tries again",
    "Frequent restarts detected": "Celery's own pause of a second between tries to reach a broker that is away",
    "Couldn't ack": "kombu says so, with a traceback, where the broker goes away before a hint is acknowledged; it comes again",
}


def judge_logs(history: History, folder: Path) -> None:
    """Count every unexpected line of every part's log."""
    for log in sorted(folder.glob("*.log")):
        with log.open(errors="replace") as lines:
            for said in unexpected(lines):
                history.wrong("unexpected_exceptions", f"{log.stem}: {said}")


def unexpected(lines: Iterable[str]) -> Iterator[str]:
    """The unexpected among log lines in JSON and what is printed between them; of a traceback its last line."""
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
            told = traceback.strip().rpartition("\n")[2] or str(entry.get("error", ""))
            yield f"{entry.get('event')}: {told}"[:400]
    if last:
        yield last


def _entry(line: str) -> dict[str, Any] | None:
    """A line that a part has logged; None for what is printed otherwise."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
