"""Periods of time as people name them, in a time zone. Pure."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import NamedTuple

from app.metering import windows
from app.quantities import seconds_of

_DAY = timedelta(days=1)
_MONTH = re.compile(r"(\d{4})-(\d{2})")
FORMS = (
    "a day (2026-11-03), days (2026-11-01..2026-11-07), a month (2026-11), a length of time like 24h or 7d, or one of"
)


class Period(NamedTuple):
    """From `since` until before `until`, both in UTC."""

    since: datetime
    until: datetime


def _week(today: date) -> date:
    return today - timedelta(days=today.weekday())


def _month(today: date) -> date:
    return today.replace(day=1)


_NAMES: dict[str, Callable[[date], tuple[date, date]]] = {
    "today": lambda today: (today, today + _DAY),
    "yesterday": lambda today: (today - _DAY, today),
    "this-week": lambda today: (_week(today), _week(today) + 7 * _DAY),
    "last-week": lambda today: (_week(today) - 7 * _DAY, _week(today)),
    "this-month": lambda today: (_month(today), _month(_month(today) + 31 * _DAY)),
    "last-month": lambda today: (_month(_month(today) - _DAY), _month(today)),
}
NAMES = tuple(_NAMES)


def parse(text: str, now: datetime, where: tzinfo = UTC) -> Period:
    """The period of this name: days are those of the time zone. A length of time ends now, and begins with the hour.

    Raises ValueError naming all forms.
    """
    try:
        if text in _NAMES:
            return _days(where, *_NAMES[text](now.astimezone(where).date()))
        if seconds := seconds_of(text):
            begin = now.astimezone(UTC) - timedelta(seconds=seconds)
            return Period(begin.replace(minute=0, second=0, microsecond=0), now)
        if found := _MONTH.fullmatch(text):
            first = date(int(found[1]), int(found[2]), 1)
            return _days(where, first, _month(first + 31 * _DAY))
        begin_text, dots, end_text = text.partition("..")
        first, last = date.fromisoformat(begin_text), date.fromisoformat(end_text if dots else begin_text)
        found_days = _days(where, first, last + _DAY)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text[:40]!r} is not a period: write {FORMS} {', '.join(NAMES)}") from error
    if last < first:
        raise ValueError(f"{text[:40]!r} ends before it begins: write the earlier day first")
    return found_days


def _days(where: tzinfo, first: date, after: date) -> Period:
    return Period(windows.start(where, first), windows.start(where, after))
