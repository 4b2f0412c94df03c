"""When a failed delivery is attempted again. Pure.

The schedule is the one that Standard Webhooks recommends: ten attempts over about 75 hours.
"""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_MINUTE, _HOUR = 60.0, 3600.0
DELAYS = (0.0, 5.0, 5 * _MINUTE, 30 * _MINUTE, *(hours * _HOUR for hours in (2, 5, 10, 14, 20, 24)))
"""Seconds before attempt 1, 2, …, 10."""

ATTEMPTS = len(DELAYS)
JITTER = 0.2
RETRY_AFTER_CAP = 24 * _HOUR


def delay(attempt: int, retry_after: float | None, jitter: float) -> float | None:
    """Seconds from failed attempt number `attempt` to the next; None: that was the last. `jitter` is uniform in -1…1."""
    if attempt >= ATTEMPTS:
        return None
    scheduled = DELAYS[attempt] * (1 + JITTER * jitter)
    return max(scheduled, min(retry_after or 0.0, RETRY_AFTER_CAP))


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds of a `Retry-After` header, given as seconds or as a date; None when absent or unreadable."""
    if not value:
        return None
    if value.strip().isdecimal():
        return float(value[:12])
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds())
