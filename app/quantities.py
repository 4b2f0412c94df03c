"""Times and counts as people read them. Pure."""

from datetime import UTC, datetime

_TIMES = ((0.9995, 1e-3, "ms"), (120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h"), (float("inf"), 86_400, "days"))


def duration(seconds: float) -> str:
    """A time in a suitable unit: 31 ms, 1.5 s, 40 s, 12 min, 5 h, 3 days."""
    seconds = max(0.0, seconds)
    unit, name = next((unit, name) for most, unit, name in _TIMES if seconds < most)
    number = seconds / unit
    shown = f"{number:.1f}".removesuffix(".0") if unit == 1 and number < 10 else f"{number:.0f}"
    return f"{shown} {name}"


def milliseconds(number: float) -> str:
    """A time in milliseconds: 1,348, 348, 9.6."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


def used_ago(seconds: float) -> str:
    """How long ago something was used whose use is noted at most once a minute: within the last minute, 5 min ago."""
    if seconds < 120:
        return f"within the last {'minute' if seconds < 60 else '2 minutes'}"
    return f"{duration(seconds)} ago"


def moment(at: datetime) -> str:
    """A time of another day: Fri 27 Nov 00:00 UTC."""
    at = at.astimezone(UTC)
    return f"{at:%a} {at.day} {at:%b %H:%M} UTC"


def many(count: float, thing: str) -> str:
    """A count and its noun: 1 token, 2,000 tokens."""
    return f"{count:,.0f} {thing}" + ("" if count == 1 else "s")


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds_of(text: str) -> float | None:
    """The seconds of a length of time like `90s`, `30m`, `24h` or `7d`; None: it is none."""
    number, unit = text[:-1], text[-1:]
    return float(number) * _UNITS[unit] if unit in _UNITS and number.isdecimal() and len(number) < 7 else None
