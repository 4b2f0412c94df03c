"""What an engine did over time, as drawings: callers below, batch work over them, and the gate under both. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.batches import why_text
from app.console.queries_engines import GateChange, Tide
from app.console.views import plots, signs, text
from app.console.views.plots import Plot, Point, Reading, Ribbon, Series, Shape, Word
from app.console.views.time_range import TimeRange
from app.headroom.samples import StoredSample

Value = Callable[[StoredSample], float | None]
Line = Sequence[tuple[datetime, float, float | None]]
_HOLE = 2.5  # stretches without a sample leave a hole in the drawing
_ROOM = 0.92  # the share of the height that the largest value takes


@dataclass(frozen=True, slots=True)
class Panel:
    """A drawing with its value now. `sub`: smaller words below it."""

    name: str
    value: str
    unit: str
    sub: str
    plot: Plot
    height: int


@dataclass(frozen=True, slots=True)
class Frame:
    """The time that a group of drawings shows, and the length of their stretches in seconds."""

    start: datetime
    end: datetime
    stretch: float

    def across(self, moment: datetime) -> float:
        """Where a moment is, from 0 to 1."""
        return plots.place(moment, self.start, self.end)

    @property
    def grid(self) -> list[float]:
        """The places of the times below, without the edges."""
        return [tick.x for tick in plots.ticks(self.start, self.end)[1:-1]]


def frame(shown: TimeRange, points: int) -> Frame:
    """The frame of a time, with about so many points."""
    return Frame(shown.start, shown.end, max(10.0, shown.length.total_seconds() / points))


def runs(at: Line, shown: Frame) -> list[list[Point]]:
    """Lines through values: (end of its time, its seconds, value). Where samples are missing a line ends and another begins."""
    found: list[list[Point]] = []
    last: datetime | None = None
    for moment, seconds, value in at:
        if value is None:
            last = None
            continue
        if last is None or (moment - last).total_seconds() > _HOLE * max(shown.stretch, 10.0):
            found.append([(shown.across(moment - timedelta(seconds=min(seconds, shown.stretch))), value)])
        found[-1].append((shown.across(moment), value))
        last = moment
    return found


def tide(name: str, samples: Sequence[Tide], shown: Frame) -> Plot:
    """Tokens a second of one engine: those of callers, and over them those of batches."""
    return _tokens(
        f"Tokens a second of {name}: callers below, batch work above",
        [(each.at, each.seconds, each.sync_tokens, each.batch_tokens) for each in samples],
        shown,
    )


def _tokens(label: str, given: Sequence[tuple[datetime, float, float, float]], shown: Frame) -> Plot:
    rates = [(at, s, sync / s, batch / s) for at, s, sync, batch in given if s > 0]
    most = max((sync + batch for _, _, sync, batch in rates), default=0.0)
    if not most:
        return Plot(label, grid=shown.grid)
    top = plots.nice_top(most) / _ROOM
    below = [(at, s, sync / top) for at, s, sync, _ in rates]
    above = [(at, s, (sync + batch) / top) for at, s, sync, batch in rates]
    words = [Word(100, 100 - 100 * most / top, f"most {text.compact(most)}", 0, -4, "end")]
    reading = Reading(
        shown.start,
        shown.end,
        [at for at, *_ in rates],
        [
            Series("harvested", "tok/s", [batch for *_, batch in rates], "harvest"),
            Series("callers", "tok/s", [sync for _, _, sync, _ in rates], "sync"),
        ],
    )
    cap = round(100 - 100 * most / top, 1)
    return Plot(label, _stacked(below, above, shown), shown.grid, caps=[cap], words=words, reading=reading)


def _reading(samples: Sequence[StoredSample], shown: Frame, *series: tuple[str, str, Value, str]) -> Reading | None:
    """What a panel says: (name, unit, value, colour). None: there is no sample."""
    lines = [Series(name, unit, [value(e) for e in samples], colour) for name, unit, value, colour in series]
    return Reading(shown.start, shown.end, [each.at for each in samples], lines) if samples else None


def _stacked(below: Line, above: Line, shown: Frame) -> list[Shape]:
    """Areas: one from the ground to `below`, one from there to `above`."""
    shapes: list[Shape] = []
    for floor, roof in zip(runs(below, shown), runs(above, shown), strict=True):
        shapes += [plots.area(floor, "a-sync"), plots.area(roof, "a-water", floor), plots.line(roof, "l-water")]
    return shapes


def gate(name: str, changes: Sequence[GateChange], first: str, shown: Frame) -> Ribbon:
    """The ribbon of a gate from each of its changes. `first`: the reason before them."""
    spans: list[tuple[datetime, datetime | None, str, str]] = []
    begin, reason = shown.start, first
    for change in changes:
        spans.append((begin, change.at, signs.ribbon(reason), _meaning(reason)))
        begin, reason = change.at, change.reason
    spans.append((begin, None, signs.ribbon(reason), _meaning(reason)))
    return plots.ribbon(f"The gate of {name}", spans, shown.start, shown.end)


def folded_gate(name: str, samples: Sequence[tuple[datetime, float, str, float]], shown: Frame) -> Ribbon:
    """The ribbon from samples (end, seconds, reason of most of them, seconds closed). A hole says that no worker saw it."""
    spans = [
        (
            at - timedelta(seconds=min(max(seconds, 10.0), shown.stretch)),
            at,
            signs.ribbon(reason) if not closed or not signs.ribbon(reason).startswith("r-open") else "r-hold",
            f"{_meaning(reason)}; closed for {closed / max(seconds, 1e-9):.0%} of the time"
            if closed
            else _meaning(reason),
        )
        for at, seconds, reason, closed in samples
    ]
    return plots.ribbon(f"The gate of {name}", spans, shown.start, shown.end)


def _meaning(reason: str) -> str:
    return f"{reason}: {why_text.gate('', reason, None, None, None, None).strip()}"


def _line(samples: Sequence[StoredSample], value: Value, top: float) -> Line:
    found = []
    for each in samples:
        known = value(each)
        found.append((each.at, each.sample.seconds, None if known is None else min(1.0, known / top)))
    return found


def panels(samples: Sequence[StoredSample], slots: int, kv_ceiling: float, shown: Frame) -> list[Panel]:
    """The drawings of an engine's page: tokens, slots, memory, steps, allowance. They share one time axis."""
    last = (
        samples[-1] if samples and (shown.end - samples[-1].at).total_seconds() < 3 * max(shown.stretch, 20) else None
    )
    return [
        _tokens_panel(samples, last, shown),
        _slots_panel(samples, last, slots, shown),
        _kv_panel(samples, last, kv_ceiling, shown),
        _steps_panel(samples, last, shown),
        _allowance_panel(samples, last, shown),
    ]


def _tokens_panel(samples: Sequence[StoredSample], last: StoredSample | None, shown: Frame) -> Panel:
    given = [(e.at, e.sample.seconds, float(e.sample.sync_tokens), float(e.sample.batch_tokens)) for e in samples]
    value, sub = "–", ""
    if last and last.sample.seconds:
        sync, batch = given[-1][2] / last.sample.seconds, given[-1][3] / last.sample.seconds
        value, sub = f"{sync + batch:,.0f}", f"batch {batch:,.0f}"
    plot = _tokens("Tokens a second, of callers and of batch work", given, shown)
    return Panel("Tokens a second", value, "", sub, plot, 120)


def _slots_panel(samples: Sequence[StoredSample], last: StoredSample | None, slots: int, shown: Frame) -> Panel:
    most = max([float(slots), *(e.sample.sync + e.sample.batch for e in samples)])
    top = most / _ROOM
    below = _line(samples, lambda e: e.sample.sync, top)
    frozen = _line(samples, lambda e: e.sample.sync + e.sample.frozen, top)
    above = _line(samples, lambda e: e.sample.sync + e.sample.batch, top)
    shapes = _stacked(below, above, shown)
    if any(e.sample.frozen for e in samples):
        shapes += [
            plots.area(roof, "a-frozen", floor)
            for floor, roof in zip(runs(below, shown), runs(frozen, shown), strict=True)
        ]
    cap = round(100 - 100 * slots / top, 1)
    words = [Word(100, cap, f"{slots:,} slots", 0, -4, "end")]
    value, sub = "–", ""
    if last:
        value = f"{last.sample.sync + last.sample.batch:,.0f}"
        sub = f"{last.sample.sync:,.0f} callers, {last.sample.batch:,.0f} batch"
        sub += f", {last.sample.frozen:,.0f} frozen" if last.sample.frozen >= 0.5 else ""
    reading = _reading(
        samples,
        shown,
        ("callers", "", lambda e: e.sample.sync, "sync"),
        ("batch", "", lambda e: e.sample.batch, "harvest"),
        ("frozen", "", lambda e: e.sample.frozen, ""),
    )
    label = "Slots by what holds them: callers below, batch work above"
    plot = Plot(label, shapes, shown.grid, caps=[cap], words=words, reading=reading)
    return Panel("Slots", value, f"of {slots:,}", sub, plot, 92)


def _kv_panel(samples: Sequence[StoredSample], last: StoredSample | None, ceiling: float, shown: Frame) -> Panel:
    used = _line(samples, lambda e: e.sample.kv_usage, 1.0)
    shapes = [shape for run in runs(used, shown) for shape in (plots.area(run, "a-water"), plots.line(run, "l-water"))]
    cap = round(100 - 100 * ceiling, 1)
    words = [Word(100, cap, f"ceiling {ceiling:.0%}", 0, 13, "end")]
    known = last.sample.kv_usage if last else None
    value = "–" if known is None else text.percent(known)
    share = ("in use", "%", lambda e: None if e.sample.kv_usage is None else 100 * e.sample.kv_usage, "harvest")
    reading = _reading(samples, shown, share)
    plot = Plot("Share of the KV cache that is in use", shapes, shown.grid, caps=[cap], words=words, reading=reading)
    return Panel("KV cache", value, "" if known is None else "%", "" if known is None else "in use", plot, 66)


def _steps_panel(samples: Sequence[StoredSample], last: StoredSample | None, shown: Frame) -> Panel:
    values = [v for e in samples for v in (e.sample.step_ms, e.sample.predicted_ms, e.sample.allowed_ms) if v]
    top = plots.nice_top(max(values, default=1.0)) / _ROOM
    shapes: list[Shape] = []
    words: list[Word] = []
    lines: tuple[tuple[str, Value], ...] = (
        ("l-q", lambda e: e.sample.predicted_ms),
        ("l-lim", lambda e: e.sample.allowed_ms),
        ("l-ink", lambda e: e.sample.step_ms),
    )
    for kind, value in lines:
        drawn = runs(_line(samples, value, top), shown)
        shapes += [plots.line(run, kind) for run in drawn]
        if kind == "l-lim" and drawn:
            allowed = next(e.sample.allowed_ms for e in reversed(samples) if e.sample.allowed_ms)
            words.append(Word(100, 100 - 100 * drawn[-1][-1][1], f"budget {_number(allowed)} ms", 0, -4, "end", "bad"))
    step, predicted = (last.sample.step_ms, last.sample.predicted_ms) if last else (None, None)
    sub = f"forecast {_number(predicted)}, grey" if predicted else ""
    reading = _reading(
        samples,
        shown,
        ("step", "ms", lambda e: e.sample.step_ms, ""),
        ("forecast", "ms", lambda e: e.sample.predicted_ms, "qq"),
        ("budget", "ms", lambda e: e.sample.allowed_ms, "bad"),
    )
    label = "Milliseconds of an engine step: measured, forecast and budget"
    plot = Plot(label, shapes, shown.grid, words=words, reading=reading)
    return Panel("Step time", _number(step), "ms" if step else "", sub, plot, 92)


def _number(value: float | None) -> str:
    """A value with three digits at most; unknown: a dash."""
    return "–" if value is None else f"{value:.1f}".removesuffix(".0") if value < 100 else f"{value:,.0f}"


def _allowance_panel(samples: Sequence[StoredSample], last: StoredSample | None, shown: Frame) -> Panel:
    most = max([1.0, *(max(e.sample.allowance, e.sample.batch) for e in samples)])
    top = plots.nice_top(most) / _ROOM
    shapes = [plots.area(run, "a-water") for run in runs(_line(samples, lambda e: e.sample.batch, top), shown)]
    shapes += [plots.line(run, "l-water") for run in runs(_line(samples, lambda e: e.sample.allowance, top), shown)]
    words = [Word(100, 100 - 100 * most / top, f"most {most:,.0f}", 0, -4, "end")] if samples else []
    value = f"{last.sample.allowance:,.0f}" if last else "–"
    sub = f"in flight {last.sample.batch:,.0f}, filled" if last else ""
    reading = _reading(
        samples,
        shown,
        ("allowed", "", lambda e: e.sample.allowance, "harvest"),
        ("in flight", "", lambda e: e.sample.batch, ""),
    )
    label = "Batch requests that the gate allows, and those in flight"
    plot = Plot(label, shapes, shown.grid, words=words, reading=reading)
    return Panel("Allowance", value, "requests" if last else "", sub, plot, 74)
