"""Lines and areas of the plots that the server draws. Pure.

The inner drawing is 360 wide and 100 high and is stretched; words and rules are placed in per cent beside it, so that text keeps
its form. Zero is at the bottom.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

WIDTH, HEIGHT = 360.0, 100.0
_DAY = 86_400
_STEPS = (
    60,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    14_400,
    21_600,
    43_200,
    *(_DAY * n for n in (1, 2, 7, 14, 28, 91, 182, 364)),
)
_BETWEEN = 4  # times between start and end that have a label; so an axis has at most six
_FORMS = ((2 * _DAY, "%H:%M"), (300 * _DAY, "%-d %b"))  # of spans shorter than this
_NEAR = 22.0  # per cent; nearer to the begin or the end than this, now takes its place on a narrow page
_EDGE = 13.0  # per cent; a tick nearer to the edge than this has no label, which would meet that of the edge
_NARROW_EDGE = 27.0  # the same on a narrow page

Point = tuple[float, float]  # across and up, each from 0 to 1


@dataclass(frozen=True, slots=True)
class Shape:
    """One path. `kind`: its class, as a-water or l-sync."""

    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class Word:
    """A text at a place in per cent; `dx`, `dy`: moved by so many pixels."""

    x: float
    y: float
    text: str
    dx: int = 0
    dy: int = 0
    anchor: str = ""
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """A time below a plot. `minor`: left out where there is little room."""

    x: float
    text: str
    anchor: str = "middle"
    minor: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """The values of a line at the times of a reading; None: not known. `colour`: of its words, as sync."""

    name: str
    unit: str
    values: Sequence[float | None]
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a plot says at its times, for a pointer and for keys. `zooms`: a part of it can be the time that the page shows."""

    start: datetime
    end: datetime
    at: Sequence[datetime]
    series: Sequence[Series]
    zooms: bool = True

    @property
    def frame(self) -> tuple[int, int]:
        """Its begin and its end in seconds since 1970."""
        return int(self.start.timestamp()), int(self.end.timestamp())

    @property
    def data(self) -> str:
        """Seconds from the begin to each time, and the series, as JSON for plots.js."""
        seconds = [round((each - self.start).total_seconds()) for each in self.at]
        lines = [[each.name, each.unit, each.colour, [_short(value) for value in each.values]] for each in self.series]
        return json.dumps([seconds, lines], separators=(",", ":"))


def _short(value: float | None) -> float | None:
    return None if value is None else round(value) if abs(value) >= 100 or value == round(value) else round(value, 1)


@dataclass(frozen=True, slots=True)
class Plot:
    """What the macro `plot` draws. `grid`, `rules`, `caps`, `limits`, `now`: places in per cent."""

    label: str
    shapes: Sequence[Shape] = ()
    grid: Sequence[float] = ()
    rules: Sequence[float] = ()
    caps: Sequence[float] = ()
    limits: Sequence[float] = ()
    words: Sequence[Word] = ()
    now: float | None = None
    reading: Reading | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of a ribbon, a lane or a meter, in per cent of its length."""

    kind: str
    x: float
    width: float
    title: str = ""
    y: float = 0
    height: float = 0


@dataclass(frozen=True, slots=True)
class Ribbon:
    """The gate of an engine over time."""

    label: str
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Lane:
    """One reason over time, and its sum in words."""

    name: str
    total: str
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Meter:
    """A bar of parts, as the words say."""

    label: str
    parts: Sequence[Bar] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class Spark:
    """A small line without an axis. `last`: its end; `limit`: the height of a line that it should stay below."""

    path: str
    colour: str = ""
    last: tuple[float, float] | None = None
    limit: float | None = None


def spark(values: Sequence[float], colour: str = "", limit: float | None = None) -> Spark | None:
    """A spark of values from left to right. None: fewer than two."""
    if len(values) < 2:
        return None
    top = max([*values, limit or 0.0]) or 1.0
    low = min([*values, limit if limit is not None else values[0]])
    low = 0.0 if low < top * 0.6 else low
    span = (top - low) or 1.0

    def up(value: float) -> float:
        return round(23 - 20 * (value - low) / span, 1)

    places = [(round(1 + 70 * n / (len(values) - 1), 1), up(value)) for n, value in enumerate(values)]
    return Spark(_joined(places), colour, places[-1], None if limit is None else up(limit))


def blank(label: str, why: str, grid: Sequence[float] = ()) -> Plot:
    """A plot without values, which says why it has none."""
    return Plot(f"{label}: {why}", grid=grid, words=[Word(50, 50, why, 0, 4, "middle")])


def line(points: Sequence[Point], kind: str) -> Shape:
    """A line through the points."""
    return Shape(kind, _joined(_placed(points)))


def area(points: Sequence[Point], kind: str, below: Sequence[Point] = ()) -> Shape:
    """The area under the points, down to those of `below`, or to the ground."""
    if not points:
        return Shape(kind, "")
    floor = list(reversed(below)) or [(points[-1][0], 0.0), (points[0][0], 0.0)]
    return Shape(kind, _joined(_placed([*points, *floor])) + "Z")


def _placed(points: Iterable[Point]) -> list[tuple[float, float]]:
    return [(round(WIDTH * across, 1), round(HEIGHT * (1 - up), 1)) for across, up in points]


def _joined(places: Sequence[tuple[float, float]]) -> str:
    steps = (f"{'L' if n else 'M'}{x:g} {y:g}" for n, (x, y) in enumerate(places))
    return "".join(steps)


def nice_top(most: float) -> float:
    """A round number at or above `most`, for the top of a scale."""
    if most <= 0:
        return 1.0
    step = 10.0 ** math.floor(math.log10(most))
    return float(next((step * factor for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * factor >= most), most))


def place(moment: datetime, start: datetime, end: datetime) -> float:
    """Where a moment is between start and end, from 0 to 1."""
    whole = (end - start).total_seconds() or 1.0
    return min(1.0, max(0.0, (moment - start).total_seconds() / whole))


def ticks(start: datetime, end: datetime, *, ends: str = "now", now: datetime | None = None) -> list[Tick]:
    """The times below a plot, at most six: its start, round times, and its end, which is called `ends` if that is not empty.

    `now`: a moment within that gets its own word, in place of a start or an end that it would meet.
    """
    seconds = (end - start).total_seconds()
    form = next((form for longest, form in _FORMS if seconds < longest), "%b %Y")
    marks = [] if now is None else [round(100 * place(now, start, end), 1)]
    found = [Tick(0, f"{start.astimezone(UTC):{form}}", "start")] if not marks or marks[0] > _NEAR else []
    for moment in _round_times(start, end, _BETWEEN - len(marks)):
        x = round(100 * place(moment, start, end), 1)
        room = min(x, 100 - x, *(abs(x - mark) for mark in marks))
        text = f"{moment:{form}}"
        if room > _EDGE and not any(tick.text == text for tick in found):
            found.append(Tick(x, text, minor=len(found) % 2 == 0 or room < _NARROW_EDGE))
    found += [Tick(mark, "now") for mark in marks]
    if marks and marks[0] > 100 - _NEAR:
        return found
    last = ends or f"{end.astimezone(UTC):{form}}"
    return [*(tick for tick in found if tick.text != last), Tick(100, last, "end")]


def _round_times(start: datetime, end: datetime, most: int) -> list[datetime]:
    """At most so many times between, at equal steps."""
    seconds = (end - start).total_seconds()
    step = next((step for step in _STEPS if seconds / step <= most), math.ceil(seconds / most / _DAY) * _DAY)
    first = (start.timestamp() // step + 1) * step
    moments = (datetime.fromtimestamp(first + n * step, UTC) for n in range(most + 1))
    return [moment for moment in moments if moment < end]


def stretches(
    spans: Sequence[tuple[datetime, datetime | None, str, str]], start: datetime, end: datetime
) -> list[tuple[str, str, float, float]]:
    """(kind, title, from, width in per cent) of (from, until, kind, title), cut to the plot; equal neighbours become one."""
    found: list[tuple[str, str, float, float]] = []
    for begin, until, kind, title in spans:
        left, right = place(begin, start, end), place(until or end, start, end)
        if right <= left:
            continue
        if found and found[-1][0] == kind and abs(found[-1][2] + found[-1][3] - 100 * left) < 0.05:
            found[-1] = (kind, found[-1][1], found[-1][2], round(100 * right - found[-1][2], 2))
        else:
            found.append((kind, title, round(100 * left, 2), round(100 * (right - left), 2)))
    return found


def ribbon(
    label: str, spans: Sequence[tuple[datetime, datetime | None, str, str]], start: datetime, end: datetime
) -> Ribbon:
    """The ribbon of (from, until, kind, title): thin where batch has room, thick where something holds it."""
    bars = []
    for kind, title, x, width in stretches(spans, start, end):
        thin = kind in {"r-open", "r-hold"}
        bars.append(Bar(kind, x, width, title, 2 if thin else 0, 2 if thin else 6))
    return Ribbon(label, bars)


def meter(label: str, total: float, *parts: tuple[str, float]) -> Meter:
    """A bar of (kind, amount) of a total. What is there is at least visible."""
    bars, x = [], 0.0
    for kind, amount in parts:
        width = 100 * amount / total if total else 0.0
        width = max(width, 0.8) if amount else 0.0
        width = min(width, 100 - x)
        if width > 0:
            bars.append(Bar(kind, round(x, 2), round(width, 2)))
        x += width
    return Meter(label, bars)
