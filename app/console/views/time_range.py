"""The time that the plots of a page show: one that ends now, or a part of the past that somebody has zoomed into. Pure.

It is in the address of the page: `range=1h`, or `from=` and `to=`.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from app.console.views import batch_filter, times
from app.errors import BadInput

PRESETS = {
    "15m": ("15 min", timedelta(minutes=15)),
    "1h": ("1 h", timedelta(hours=1)),
    "6h": ("6 h", timedelta(hours=6)),
    "24h": ("24 h", timedelta(hours=24)),
    "7d": ("7 d", timedelta(days=7)),
}
PARAMS = ("range", "from", "to")
_LEAST, _MOST = timedelta(minutes=1), timedelta(days=35)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """`name`: of PRESETS, which end now; empty: a part of the past."""

    name: str
    start: datetime
    end: datetime

    @property
    def live(self) -> bool:
        """Whether it ends now."""
        return bool(self.name)

    @property
    def length(self) -> timedelta:
        """How long it is."""
        return self.end - self.start

    @property
    def until(self) -> datetime | None:
        """Its end, unless that is now."""
        return None if self.live else self.end

    @property
    def key(self) -> Hashable:
        """Equal for those that show the same."""
        return self.name or (self.start, self.end)

    @property
    def ends(self) -> str:
        """The word at the end of its axis; empty: the time."""
        return "now" if self.live else ""

    @property
    def words(self) -> str:
        """As in: what happened, `last 1 h`."""
        return f"last {PRESETS[self.name][0]}" if self.live else _span(self.start, self.end)


def given(params: Mapping[str, str], now: datetime, usual: str) -> TimeRange:
    """The time that the parameters of a page name. Raises BadInput for a `from` or a `to` that is no time."""
    start, end = _moment(params, "from"), _moment(params, "to")
    if start is not None and end is not None and start < end and start < now - _LEAST:
        end = min(now, max(end, start + _LEAST))
        return TimeRange("", max(start, end - _MOST), end)
    name = params.get("range", usual)
    name = name if name in PRESETS else usual
    return TimeRange(name, now - PRESETS[name][1], now)


def _moment(params: Mapping[str, str], name: str) -> datetime | None:
    if not (text := params.get(name, "")):
        return None
    try:
        found = datetime.fromisoformat(text.replace(" ", "+"))
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadInput(f"{name}: must be a time such as 2026-11-23T14:05:00Z", param=name) from None


def choices(path: str, shown: TimeRange, usual: str) -> Sequence[dict[str, Any]]:
    """The presets as links, and the part that somebody has zoomed into."""
    found = [
        {
            "name": words,
            "href": batch_filter.address(path, range=name if name != usual else ""),
            "here": name == shown.name,
        }
        for name, (words, _) in PRESETS.items()
    ]
    if not shown.live:
        here = batch_filter.address(path, **{"from": iso(shown.start), "to": iso(shown.end)})
        found.append({"name": shown.words, "href": here, "here": True})
    return found


def iso(moment: datetime) -> str:
    """As an address has it: 2026-11-23T14:05:00Z."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _span(start: datetime, end: datetime) -> str:
    if end - start < timedelta(minutes=15):
        return f"{times.seconds_time(start)} to {times.seconds_time(end)}"
    day = "" if start.date() == end.date() else f"{end.day} {end:%b} "
    return f"{start.day} {start:%b} {start:%H:%M} to {day}{end:%H:%M}"
