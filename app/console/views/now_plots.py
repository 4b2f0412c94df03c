"""The drawings of Now: the tide of each engine, its gate, and how long callers wait. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from app.batches.protection import DAYS, LIMIT, Protection, Stretch
from app.console.queries_engines import Tide
from app.console.views import engine_plots, plots, text
from app.console.views.engine_plots import Frame
from app.console.views.plots import Plot, Reading, Series, Word
from app.headroom.samples import StoredSample, callers_rate
from app.quantities import milliseconds

_FRESH = timedelta(seconds=45)
_LOW = 92.0  # per cent; a word below a line from there on would meet the axis
_LINE = 11.0  # per cent of the height that a word takes
_TABLE_ROWS = 12
_HEAD = 1.18  # room above the highest point


def latest(history: Sequence[StoredSample], now: datetime) -> tuple[float | None, float | None]:
    """Harvested and synchronous tokens a second in the newest sample; None: it is old, or does not know."""
    if not history or now - history[-1].at > max(_FRESH, 2 * _stretch(history)):
        return None, None
    return _rates(history[-1])


def _stretch(history: Sequence[StoredSample]) -> timedelta:
    return timedelta(seconds=max((each.sample.seconds for each in history), default=10.0))


def pace(history: Mapping[int, Sequence[StoredSample]], now: datetime) -> list[float]:
    """Harvested tokens a second of all engines together, by stretch."""
    found: dict[int, float] = {}
    for samples in history.values():
        step = max(1.0, _stretch(samples).total_seconds())
        for each in samples:
            index = int(each.at.timestamp() // step)
            found[index] = found.get(index, 0.0) + each.sample.batch_tokens / (each.sample.seconds or 1.0)
    values = [found[index] for index in sorted(found)]
    return values[:-1] if len(values) > 2 else values  # the newest stretch is not over


def tide(name: str, history: Sequence[StoredSample], start: datetime, end: datetime) -> tuple[Plot, plots.Ribbon]:
    """The tide of one engine and its gate, drawn as on the page of engines."""
    shown = Frame(start, end, _stretch(history).total_seconds())
    samples = [
        Tide(each.at, of.reason, of.seconds, of.closed_seconds, of.batch_tokens, of.sync_tokens)
        for each in history
        for of in [each.sample]
    ]
    folded = [(each.at, each.seconds, each.reason, each.closed_seconds) for each in samples]
    return engine_plots.tide(name, samples, shown), engine_plots.folded_gate(name, folded, shown)


def _rates(each: StoredSample) -> tuple[float, float | None]:
    of = each.sample
    seconds = of.seconds or 1.0
    return of.batch_tokens / seconds, callers_rate(of.sync_tokens, seconds, of.sync)


def tide_table(
    names: Mapping[int, str], history: Mapping[int, Sequence[StoredSample]]
) -> tuple[list[str], list[list[str]]]:
    """The tides in numbers: harvested and synchronous tokens a second of each engine, at some times."""
    head = ["Until", *(name for engine in names.values() for name in (f"{engine}: harvested", "callers"))]
    rows: dict[str, list[str]] = {}
    for n, engine_id in enumerate(names):
        samples = history.get(engine_id, ())
        for each in samples[:: max(1, len(samples) // _TABLE_ROWS)]:
            row = rows.setdefault(f"{each.at:%H:%M}", ["–"] * (2 * len(names)))
            row[2 * n : 2 * n + 2] = [text.count(rate) for rate in _rates(each)]
    return head, [[at, *row] for at, row in sorted(rows.items())]


def latency_table(calls: Protection, name: str) -> list[list[str]]:
    """A quantile in numbers: time, beside batch work, alone."""
    stretches = calls.stretches[:: max(1, len(calls.stretches) // _TABLE_ROWS)]
    return [[f"{each.start:%H:%M}", *(text.count(value) for value in _values(each, name))] for each in stretches]


def _values(stretch: Stretch, name: str) -> tuple[float | None, float | None]:
    return getattr(stretch.beside, name), getattr(stretch.alone, name)


def spark(calls: Protection, name: str) -> plots.Spark | None:
    """The quantile of each stretch, beside batch work where that was measured, else alone."""
    found = [next((value for value in _values(each, name) if value is not None), None) for each in calls.stretches]
    return plots.spark([value for value in found if value is not None], "s")


def latency(calls: Protection, name: str, start: datetime, end: datetime) -> Plot:
    """A quantile over time: beside batch work as the strong line, alone as the quiet one. What it is compared with is dashed, and
    so is how long it may take before callers count as slowed.
    """
    usual = getattr(calls.alone, name)
    most = usual * LIMIT if usual and calls.measured else None
    beside = [(each.start, _values(each, name)[0]) for each in calls.stretches]
    alone = [(each.start, _values(each, name)[1]) for each in calls.stretches]
    known = [value for _, value in (*beside, *alone) if value is not None]
    what = "first token" if name.startswith("first") else "time between tokens"
    label = f"p95 of the {what} of synchronous requests, beside batch work and alone"
    grid = [tick.x for tick in plots.ticks(start, end)[1:-1]]
    if not known:
        why = "no answer had a second token" if name.startswith("gap") else "no answer had a token"
        return plots.blank(label, f"{why} in this time", grid)
    top = max(known + [each for each in (usual, most) if each]) * _HEAD
    shapes, words = [], []
    for values, kind, said in ((alone, "l-q", "alone"), (beside, "l-sync", "beside batch")):
        points = [(plots.place(at, start, end), value / top) for at, value in values if value is not None]
        if len(points) > 1:
            shapes.append(plots.line(points, kind))
        elif points:
            x, y = points[0]
            shapes.append(plots.line([(max(0.0, x - 0.004), y), (min(1.0, x + 0.004), y)], kind))
        if points:
            last = next(value for _, value in reversed(values) if value is not None)
            colour = "k" if kind == "l-sync" else ""
            words.append(Word(100, _up(last, top), f"{said} {milliseconds(last)}", colour=colour))
    limits = [_up(most, top)] if most else []
    caps = [_up(usual, top)] if usual else []
    if most:
        words.append(Word(0, limits[0], f"limit {milliseconds(most)} ms", 0, -5, "", "bad"))
    if usual:
        of = f"{DAYS} days" if calls.measured else "of few"
        place = (caps[0], 12) if caps[0] < _LOW else (limits[0], -18) if most else (caps[0], -5)
        words.append(Word(0, place[0], f"alone, {of}: {milliseconds(usual)} ms", 0, place[1]))
    reading = _reading(calls, name, start, end)
    return Plot(label, shapes, grid, limits=limits, caps=caps, words=_apart(words), reading=reading)


def _up(value: float, top: float) -> float:
    return round(100 - 100 * value / top, 1)


def _reading(calls: Protection, name: str, start: datetime, end: datetime) -> Reading:
    values = [_values(each, name) for each in calls.stretches]
    lines = [
        Series("beside batch", "ms", [beside for beside, _ in values], "sync"),
        Series("alone", "ms", [alone for _, alone in values]),
    ]
    return Reading(start, end, [each.start for each in calls.stretches], lines)


def _apart(words: list[Word]) -> list[Word]:
    """The words behind the ends of the lines, moved so that they do not meet."""
    found = sorted((word for word in words if word.x == 100), key=lambda word: word.y)
    near = len(found) == 2 and found[1].y - found[0].y < _LINE
    shifts = (-5, 11) if near else (4, 4)
    rest = [word for word in words if word.x != 100]
    return rest + [replace(word, dx=8, dy=shift) for word, shift in zip(found, shifts, strict=False)]
