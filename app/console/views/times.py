"""Times as a page prints them: relative, with the absolute time on hover. All in UTC. Pure."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from app.console.views.text import NBSP

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0


def iso(moment: datetime | None) -> str:
    """For the attribute of a <time>, and as the title: 2026-11-23 14:08:02 UTC."""
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def span(seconds: float | None) -> str:
    """A length of time in at most two units: 40 s, 8 min, 2 h 10 min, 1 day, 3 days. Unknown: a dash."""
    if seconds is None:
        return "–"
    seconds = max(0.0, seconds)
    words = next((say(seconds) for most, say in _SPANS if seconds < most), None)
    if words is not None:
        return words
    days = round(seconds / _DAY)
    return f"{days}{NBSP}day" + ("" if days == 1 else "s")


def _tenths(seconds: float) -> str:
    return f"{seconds:.1f}".removesuffix(".0") + f"{NBSP}s"


def _hours(seconds: float) -> str:
    minutes = round(seconds / _MINUTE)
    return f"{minutes // 60}{NBSP}h" + (f" {minutes % 60}{NBSP}min" if minutes % 60 else "")


_SPANS: tuple[tuple[float, Callable[[float], str]], ...] = (
    (0.9995, lambda seconds: f"{seconds * 1000:.0f}{NBSP}ms"),
    (9.95, _tenths),
    (90, lambda seconds: f"{seconds:.0f}{NBSP}s"),
    (90 * _MINUTE, lambda seconds: f"{seconds / _MINUTE:.0f}{NBSP}min"),
    (10 * _HOUR, _hours),
    (36 * _HOUR, lambda seconds: f"{seconds / _HOUR:.0f}{NBSP}h"),
)


def clock_time(moment: datetime | None, now: datetime | None = None) -> str:
    """14:31; of another day than `now`: Fri 14:31, or 3 Nov 14:31 if that is more than six days away. Unknown: a dash."""
    if moment is None:
        return "–"
    moment = moment.astimezone(UTC)
    if now is None or moment.date() == now.astimezone(UTC).date():
        return f"{moment:%H:%M}"
    if abs(moment - now) < timedelta(days=6):
        return f"{moment:%a %H:%M}"
    return f"{moment.day} {moment:%b %H:%M}"


def seconds_time(moment: datetime | None) -> str:
    """14:31:07."""
    return "–" if moment is None else f"{moment.astimezone(UTC):%H:%M:%S}"
