"""What an engine did over time, as drawings: callers below, batch work over them, and the gate under both. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.batches import why_text
from app.console.queries_engines import GateChange, Tide
from app.console.views import plots, signs, text, times
from app.console.views.plots import Plot, Point, Reading, Ribbon, Series, Shape, Word
from app.console.views.time_range import TimeRange
from app.headroom.samples import SAMPLE_SECONDS, EngineSample, StoredSample

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
        why = "no token was computed in this time" if rates else "nothing is known of this time"
        return plots.blank(label, why, shown.grid)
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


def gate(name: str, changes: Sequence[GateChange], samples: Sequence[StoredSample], shown: Frame) -> Ribbon:
    """The ribbon of a gate from each of its changes, over the time of the samples: a hole says that no worker saw it."""
    before = samples[0].sample.reason if samples else ""
    reasons = [(shown.start, before), *((change.at, change.reason) for change in changes)]
    ends = [*(at for at, _ in reasons[1:]), shown.end]
    spans: list[tuple[datetime, datetime | None, str, str]] = []
    for begin, end in _seen(samples, shown):
        spans += [
            (max(at, begin), min(until, end), signs.ribbon(reason), _meaning(reason))
            for (at, reason), until in zip(reasons, ends, strict=True)
            if at < end and until > begin
        ]
    return plots.ribbon(f"The gate of {name}", spans, shown.start, shown.end)


def _seen(samples: Sequence[StoredSample], shown: Frame) -> list[tuple[datetime, datetime]]:
    """The times that samples cover. The newest may still be under way."""
    patience = timedelta(seconds=_HOLE * max(shown.stretch, SAMPLE_SECONDS))
    found: list[tuple[datetime, datetime]] = []
    for each in samples:
        begin = each.at - timedelta(seconds=min(each.sample.seconds, shown.stretch))
        if found and begin - found[-1][1] < patience:
            found[-1] = found[-1][0], each.at
        else:
            found.append((begin, each.at))
    if found and shown.end - found[-1][1] < patience:
        found[-1] = found[-1][0], shown.end
    return found


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


@dataclass(frozen=True, slots=True)
class Held:
    """The slots of an engine by what holds them. Callers, batch and free ones add up to all. `frozen`: of the batch. `queued`:
    requests that wait in the engine for a slot.
    """

    sync: int
    batch: int
    frozen: int
    free: int
    queued: int

    @classmethod
    def of(cls, sync: float, batch: float, frozen: float, slots: int) -> "Held":
        """Of so many requests in the engine. Callers are served first, so what waits is batch work before them."""
        callers, work = min(round(sync), slots), round(batch)
        held = min(work, slots - callers)
        return cls(callers, held, min(round(frozen), held), slots - callers - held, round(sync) - callers + work - held)


def panels(
    samples: Sequence[StoredSample], last: EngineSample | None, held: Held, kv_ceiling: float, shown: Frame
) -> list[Panel]:
    """The drawings of an engine's page: tokens, slots, memory, steps, allowance. They share one time axis. `last`: its values
    at the end of the time; `held`: its slots then.
    """
    return [
        _tokens_panel(samples, last, shown),
        _slots_panel(samples, last, held, shown),
        _kv_panel(samples, last, kv_ceiling, shown),
        _steps_panel(samples, last, shown),
        _allowance_panel(samples, last, shown),
    ]


def _tokens_panel(samples: Sequence[StoredSample], last: EngineSample | None, shown: Frame) -> Panel:
    given = [(e.at, e.sample.seconds, float(e.sample.sync_tokens), float(e.sample.batch_tokens)) for e in samples]
    value, sub = "–", ""
    if last and last.seconds:
        sync, batch = last.sync_tokens / last.seconds, last.batch_tokens / last.seconds
        value, sub = f"{sync + batch:,.0f}", f"batch {batch:,.0f}"
    plot = _tokens("Tokens a second, of callers and of batch work", given, shown)
    return Panel("Tokens a second", value, "", sub, plot, 120)


def _slots_panel(samples: Sequence[StoredSample], last: EngineSample | None, held: Held, shown: Frame) -> Panel:
    slots = held.sync + held.batch + held.free
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
        value = f"{held.sync + held.batch:,}"
        sub = f"{held.sync:,} callers, {held.batch:,} batch"
        sub += f", {held.frozen:,} of it frozen" if held.frozen else ""
        sub += f"; {held.queued:,} more wait" if held.queued else ""
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


def _kv_panel(samples: Sequence[StoredSample], last: EngineSample | None, ceiling: float, shown: Frame) -> Panel:
    used = _line(samples, lambda e: e.sample.kv_usage, 1.0)
    shapes = [shape for run in runs(used, shown) for shape in (plots.area(run, "a-water"), plots.line(run, "l-water"))]
    cap = round(100 - 100 * ceiling, 1)
    words = [Word(100, cap, f"ceiling {ceiling:.0%}", 0, 13, "end")]
    label = "Share of the KV cache that is in use"
    if not shapes:
        return Panel("KV cache", "–", "", "", plots.blank(label, "the engine does not say it", shown.grid), 66)
    known = last.kv_usage if last else None
    value = "–" if known is None else text.percent(known)
    share = ("in use", "%", lambda e: None if e.sample.kv_usage is None else 100 * e.sample.kv_usage, "harvest")
    reading = _reading(samples, shown, share)
    plot = Plot(label, shapes, shown.grid, caps=[cap], words=words, reading=reading)
    return Panel("KV cache", value, "" if known is None else "%", "" if known is None else "in use", plot, 66)


def _steps_panel(samples: Sequence[StoredSample], last: EngineSample | None, shown: Frame) -> Panel:
    values = [v for e in samples for v in (e.sample.step_ms, e.sample.predicted_ms, _budget(e)) if v]
    top = plots.nice_top(max(values, default=1.0)) / _ROOM
    shapes: list[Shape] = []
    lines: tuple[tuple[str, Value], ...] = (
        ("l-q", lambda e: e.sample.predicted_ms),
        ("l-lim", _budget),
        ("l-ink", lambda e: e.sample.step_ms),
    )
    for kind, value in lines:
        shapes += [plots.line(run, kind) for run in runs(_line(samples, value, top), shown)]
    reading = _reading(
        samples,
        shown,
        ("step", "ms", lambda e: e.sample.step_ms, ""),
        ("forecast", "ms", lambda e: e.sample.predicted_ms, "qq"),
        ("budget", "ms", _budget, "bad"),
        ("idle limit", "ms", lambda e: None if _budget(e) else e.sample.allowed_ms, "qq"),
    )
    step, predicted = (last.step_ms, last.predicted_ms) if last else (None, None)
    said = [f"forecast {_number(predicted)}, grey" if predicted else "", _idle(last) if last else ""]
    label = "Milliseconds of an engine step: measured, forecast and budget"
    plot = Plot(label, shapes, shown.grid, words=_budget_words(samples, top), reading=reading)
    if not shapes:
        plot = plots.blank(label, "no step was measured in this time", shown.grid)
    return Panel("Step time", _number(step), "ms" if step else "", "; ".join(filter(None, said)), plot, 92)


def _budget(each: StoredSample) -> float | None:
    """What a step was allowed to take while callers were there. Without callers it may grow to many seconds: no budget then."""
    return each.sample.allowed_ms if each.sample.sync else None


def _budget_words(samples: Sequence[StoredSample], top: float) -> list[Word]:
    known = [budget for each in samples if (budget := _budget(each))]
    if not known:
        return []
    return [Word(100, 100 - 100 * known[-1] / top, f"budget {_number(known[-1])} ms", 0, -4, "end", "bad")]


def _idle(last: EngineSample) -> str:
    """What a step may take while there is no caller, in words that do not alarm."""
    if last.sync or not last.allowed_ms:
        return ""
    return f"no caller: a step may take {times.span(last.allowed_ms / 1000)}"


def _number(value: float | None) -> str:
    """A value with three digits at most; unknown: a dash."""
    return "–" if value is None else f"{value:.1f}".removesuffix(".0") if value < 100 else f"{value:,.0f}"


def _allowance_panel(samples: Sequence[StoredSample], last: EngineSample | None, shown: Frame) -> Panel:
    most = max([1.0, *(max(e.sample.allowance, e.sample.batch) for e in samples)])
    top = plots.nice_top(most) / _ROOM
    shapes = [plots.area(run, "a-water") for run in runs(_line(samples, lambda e: e.sample.batch, top), shown)]
    shapes += [plots.line(run, "l-water") for run in runs(_line(samples, lambda e: e.sample.allowance, top), shown)]
    words = [Word(100, 100 - 100 * most / top, f"most {most:,.0f}", 0, -4, "end")] if samples else []
    value = f"{last.allowance:,.0f}" if last else "–"
    sub = f"in the engine {last.batch:,.0f}, filled" if last else ""
    reading = _reading(
        samples,
        shown,
        ("allowed", "", lambda e: e.sample.allowance, "harvest"),
        ("in flight", "", lambda e: e.sample.batch, ""),
    )
    label = "Batch requests that the gate allows, and those in flight"
    plot = Plot(label, shapes, shown.grid, words=words, reading=reading)
    return Panel("Allowance", value, "requests" if last else "", sub, plot, 74)
