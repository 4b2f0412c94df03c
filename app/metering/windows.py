"""The calendar windows of a budget, in a named time zone. Pure.

A day begins at the first moment whose local date is that day: at midnight, or where the clock skips midnight, when it jumps. A
week begins on Monday. Days of 23 and 25 hours come from daylight saving time, and so do hours of 30 minutes in the few zones
whose clock moves by half an hour. An hour that the clock repeats is two windows, of one hour each.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import StrEnum
from zoneinfo import ZoneInfo

HOUR = timedelta(hours=1)
_SECOND = timedelta(seconds=1)
_NONE = timedelta()
_TOTAL_FROM = datetime(1970, 1, 1, tzinfo=UTC)
_NO_ZONES = ("localtime", "posixrules", "Factory")  # what they mean differs from machine to machine
_NO_FOLDERS = ("posix/", "right/")  # the same zones again, and clocks that count leap seconds


class Period(StrEnum):
    """How long a budget's money lasts before it is renewed. `total`: it is not renewed."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    TOTAL = "total"


Window = tuple[datetime, datetime | None]

_FIRST_DAY: dict[Period, Callable[[date], date]] = {
    Period.DAY: lambda day: day,
    Period.WEEK: lambda day: day - timedelta(days=day.weekday()),
    Period.MONTH: lambda day: day.replace(day=1),
}
_DAYS_AT_MOST = {Period.DAY: 1, Period.WEEK: 7, Period.MONTH: 31}


def window(period: str, tz: str, now: datetime) -> Window:
    """The window that contains `now`: its first moment, and the first one after it, both in UTC. `total` has no end.

    Raises ValueError: an unknown period or time zone, or a time without a time zone.
    """
    if now.tzinfo is None:
        raise ValueError(f"{now.isoformat()}: has no time zone; add one, such as +00:00")
    known, where = _period(period), zone(tz)
    if known is Period.TOTAL:
        return _TOTAL_FROM, None
    if known is Period.HOUR:
        return _hour(where, now.astimezone(UTC))
    return _days(where, now.astimezone(UTC), known)


def zone(name: str) -> ZoneInfo:
    """The time zone of this name. Raises ValueError if the IANA database does not have it."""
    try:
        if name in _NO_ZONES or name.startswith(_NO_FOLDERS):
            raise ValueError(name)
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(
            f"time zone {name[:64]!r}: unknown; write a name of the IANA database, such as 'UTC' or 'Europe/Berlin'"
        ) from error


def _period(name: str) -> Period:
    try:
        return Period(name)
    except ValueError as error:
        raise ValueError(f"period {name[:64]!r}: unknown; write one of {', '.join(Period)}") from error


def _days(where: tzinfo, now: datetime, period: Period) -> Window:
    begin = _FIRST_DAY[period](now.astimezone(where).date())
    while True:
        after = _FIRST_DAY[period](begin + timedelta(days=_DAYS_AT_MOST[period]))
        end = start(where, after)
        if now < end:
            return start(where, begin), end
        begin = after  # the clock went back over midnight, so the local date is the day before once more


def start(where: tzinfo, day: date) -> datetime:
    """The first moment of a local day, in UTC."""
    midnight = datetime.combine(day, time(), where)
    before, after = midnight.astimezone(UTC), midnight.replace(fold=1).astimezone(UTC)
    return _jump(where, after, before) if after < before else before


def _hour(where: tzinfo, now: datetime) -> Window:
    past = _past(where, now)
    begin = now - (now - now.replace(minute=0, second=0, microsecond=0) + past) % HOUR
    end = begin + HOUR
    if _past(where, begin) != past:
        begin = _jump(where, begin, now)
    if _past(where, end - _SECOND) != past:
        end = _jump(where, now, end)
    return begin, end


def _past(where: tzinfo, moment: datetime) -> timedelta:
    """By how much the local clock is past a whole hour when UTC is at one."""
    return _offset(where, moment) % HOUR


def _offset(where: tzinfo, moment: datetime) -> timedelta:
    return moment.astimezone(where).utcoffset() or _NONE


def _jump(where: tzinfo, before: datetime, after: datetime) -> datetime:
    """The moment between these two at which the clock jumps. Clocks jump at whole seconds."""
    low, high = before.replace(microsecond=0), after.replace(microsecond=0)
    old = _offset(where, low)
    while high - low > _SECOND:
        middle = low + (high - low) // 2 // _SECOND * _SECOND
        low, high = (middle, high) if _offset(where, middle) == old else (low, middle)
    return high
