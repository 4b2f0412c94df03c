"""Places in lists: where a page begins, as its caller names it. Each survives the deletion of its row. Pure.

Most lists are in the order of time. Of what its owner may delete, the id begins with its time (`app.cells`); elsewhere a place is
written as a time and an id, or the row stays longer than the list shows it.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

from app import cells
from app.errors import PlaceUnknown

T = TypeVar("T")
TIME = "[0-9]{1,16}[.]"  # with what a written place begins, as a pattern: microseconds since 1970
NUMBER = "[0-9]{1,18}"
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_DIGITS, _TIME_DIGITS = 18, 16


def written(at: datetime, identity: object) -> str:
    """The place of what was made at this time and has this id, for `read`."""
    return f"{(at - _EPOCH) // _MICROSECOND}.{identity.hex if isinstance(identity, UUID) else identity}"


def read(given: str | None, parse: Callable[[str], T], param: str = "after") -> tuple[datetime, T] | None:
    """The time and the id of a written place; empty: None. `parse`: makes the id of its text, or raises ValueError. Raises
    PlaceUnknown.
    """
    if not given:
        return None
    at, _, identity = given.partition(".")
    try:
        return _EPOCH + number(at, _TIME_DIGITS) * _MICROSECOND, parse(identity)
    except (ValueError, OverflowError):
        raise PlaceUnknown(given, param) from None


def number(text: str, most_digits: int = _DIGITS) -> int:
    """An id that is a number. Raises ValueError."""
    if not (text.isascii() and text.isdecimal() and len(text) <= most_digits):
        raise ValueError(text)
    return int(text)


def parsed(given: str | None, parse: Callable[[str], T | None], param: str = "after") -> T | None:
    """The id that is a place; empty: None. `parse`: makes the id of its text; for what is none it has None or raises ValueError.
    Raises PlaceUnknown.
    """
    if not given:
        return None
    try:
        found = parse(given)
    except ValueError:
        found = None
    if found is None:
        raise PlaceUnknown(given, param)
    return found


def time_of(timed_id: UUID | None, given: object = None) -> datetime | None:
    """When an id was made that begins with its time; None: of None. `given`: as its caller wrote it. Raises PlaceUnknown."""
    if timed_id is None:
        return None
    at = cells.made_at(timed_id)
    if at is None:
        raise PlaceUnknown(given or timed_id)
    return at
