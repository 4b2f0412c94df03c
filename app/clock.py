"""The only source of time in Python code.

Postgres (`now()`) stamps rows and decides whether leases hold. This module is for times within one process: signature
timestamps, deadlines of a single HTTP call, intervals.
"""

import time
from datetime import UTC, datetime


def now() -> datetime:
    """The wall clock as an aware UTC datetime."""
    return datetime.now(UTC)


def iso(moment: datetime | None) -> str | None:
    """A time as the API and `--json` write it: ISO 8601 in UTC with milliseconds, ending in `+00:00`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds") if moment else None


def wall_ns() -> int:
    """The wall clock in nanoseconds since 1970, as spans have it."""
    return time.time_ns()


def wall_ns_of(moment: float) -> int:
    """The wall clock at a moment of the monotonic clock, in nanoseconds."""
    return time.time_ns() - round((time.monotonic() - moment) * 1e9)


def monotonic() -> float:
    """Seconds of a clock that never jumps; compare only within one process."""
    return time.monotonic()
