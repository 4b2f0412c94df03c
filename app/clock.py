"""The only source of time in Python code.

Rows are stamped by Postgres (`now()`); leases are judged by Postgres too. This module serves what stays
inside one process: signing timestamps, deadlines of a single HTTP call, intervals.
"""

import time
from datetime import UTC, datetime


def now() -> datetime:
    """The wall clock as an aware UTC datetime."""
    return datetime.now(UTC)


def iso(moment: datetime | None) -> str | None:
    """A moment as the API and `--json` write it: ISO 8601 in UTC with milliseconds, ending in `+00:00`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds") if moment else None


def monotonic() -> float:
    """Seconds of a clock that never jumps; compare only within one process."""
    return time.monotonic()
