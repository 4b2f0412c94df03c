"""The drawing of a batch over time: items done, the forecast, and lanes of what held it up. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from app.batches.why_chain import Why
from app.console.queries import BatchRow
from app.console.views import batch_state, plots, signs, times
from app.console.views.plots import Plot, Reading, Series, Word
from app.queue.phases import Phase

Progress = tuple[Sequence[datetime], int]  # times at which a sample of the items was done, and the size of the sample
_CONES = {"high": 0.2, "medium": 0.5, "low": 1.0}
_TABLE_ROWS = 12
_HIGH = 0.82  # from there on the word of what is done would meet that of the end
_ROOM = 0.25  # of the time so far, for the word of the end beside the line of now
_FAR, _FAR_TIMES = timedelta(days=2), 20  # what is further away is not drawn: the items done so far would be a dot


def span(row: BatchRow, why: Why | None, now: datetime) -> tuple[datetime, datetime]:
    """From the start of the run to its end: past, expected, or now."""
    if row.finalized_at is not None:
        return row.opened_at, max(row.finalized_at, row.opened_at + timedelta(seconds=1))
    seconds = why.estimate.eta_seconds if why and why.estimate else None
    start = min(row.opened_at, now - timedelta(seconds=10))
    if not seconds:
        return start, now
    ahead = max(timedelta(seconds=1.25 * seconds), _ROOM * (now - start))
    return start, now + min(ahead, max(_FAR, _FAR_TIMES * (now - start)))


def drawing(row: BatchRow, why: Why | None, progress: Progress, start: datetime, end: datetime, now: datetime) -> Plot:
    """Items done over time, and the cone of the forecast."""
    ok, failed = batch_state.counts(row, why)
    done = ok + failed
    moment = min(now, row.finalized_at or now)
    sample, size = progress
    top = 0.93  # the height at which all items are done
    inside = [at for at in sample if at >= start]
    before = len(sample) - len(inside)
    points = [(0.0, top * before / max(size, 1))]
    points += [
        (plots.place(at, start, end), top * min(done / max(1, row.total), (before + n) / size))
        for n, at in enumerate(inside, 1)
    ]
    here = (plots.place(moment, start, end), top * done / max(1, row.total))
    points.append(here)
    shapes = [plots.area(points, "a-water"), plots.line(points, "l-water")]
    words: list[Word] = []
    estimate = why.estimate if why else None
    if row.finalized_at is None and estimate is not None and estimate.eta_seconds:
        ends = now + timedelta(seconds=estimate.eta_seconds)
        shapes += _cone(here, now, estimate.eta_seconds, _CONES.get(str(estimate.confidence), 1.0), start, end, top)
        at, far = 100 * plots.place(ends, start, end), " →" if ends > end else ""
        said = f"{batch_state.ending(row, why, now).at}{far}"
        words.append(Word(100, 7, said, 0, 18, "end", "k") if at > 88 else Word(at, 7, said, 4, 18, "", "k"))
        right = here[0] > 0.75
        words.append(
            Word(
                100 * here[0],
                100 - 100 * here[1],
                f"{done:,} done",
                -8 if right else 8,
                16 if here[1] < _HIGH else 32,
                "end" if right else "",
                "k",
            )
        )
    elif row.finalized_at is None:
        words.append(Word(100, 100 - 100 * here[1], f"{done:,} done", -8, -8 if here[1] < 0.5 else 16, "end", "k"))
    label = f"Items done since {times.clock_time(start, now)}: {done:,} of {row.total:,}"
    grid = [tick.x for tick in plots.ticks(start, end)[1:-1]]
    now_at = round(100 * here[0], 1) if row.finalized_at is None and end > now else None
    moments = [*inside, moment]
    counts = [min(done, round((before + n) / max(size, 1) * row.total)) for n in range(1, len(inside) + 1)]
    reading = Reading(start, end, moments, [Series("done", "items", [*counts, done], "harvest")], zooms=False)
    return Plot(label, shapes, grid, caps=[100 - 100 * top], words=words, now=now_at, reading=reading)


def progress_table(row: BatchRow, why: Why | None, progress: Progress, now: datetime) -> list[tuple[datetime, int]]:
    """The drawing in numbers: some times, and the items that were done by then."""
    sample, size = progress
    ok, failed = batch_state.counts(row, why)
    step = max(1, len(sample) // _TABLE_ROWS)
    found = [(at, min(ok + failed, round(n / size * row.total))) for n, at in enumerate(sample, 1)][::step]
    return [*found, (min(now, row.finalized_at or now), ok + failed)]


def _cone(
    here: plots.Point, now: datetime, seconds: float, spread: float, start: datetime, end: datetime, top: float
) -> list[plots.Shape]:
    """The forecast from here to the height of all items, cut at the end of the drawing."""

    def at(factor: float) -> float:
        return (now + timedelta(seconds=seconds * factor) - start) / (end - start)

    early, late = max(0.3, 1 - spread), 1 + spread
    corner = [(1.0, top)] if at(early) < 1 < at(late) else []
    sides = [here, _cut(here, (at(early), top)), *corner, _cut(here, (at(late), top))]
    return [
        plots.Shape("a-cone", plots.line(sides, "").path + "Z"),
        plots.line([here, _cut(here, (at(1.0), top))], "l-cone"),
    ]


def _cut(here: plots.Point, to: plots.Point) -> plots.Point:
    """Where a line from here leaves the drawing at its right edge; its own end if that is within."""
    if to[0] <= 1:
        return to
    return 1.0, here[1] + (to[1] - here[1]) * (1 - here[0]) / (to[0] - here[0])


def held(found: Sequence[Phase], start: datetime, end: datetime, now: datetime) -> list[plots.Lane]:
    """A lane for each kind of reason that the batch has waited for, with the time that it took."""
    bars: dict[str, list[tuple[datetime, datetime | None, str, str]]] = {}
    seconds: dict[str, float] = {}
    for phase in found:
        name, kind = signs.lane(phase.code)
        until = phase.until or now
        bars.setdefault(name, []).append((phase.at, until, kind, f"{phase.code}: {signs.waiting(phase.code)[1]}"))
        begin = max(phase.at, start)
        seconds[name] = seconds.get(name, 0.0) + max(0.0, (until - begin).total_seconds())
    return [
        plots.Lane(
            name,
            times.span(seconds[name]),
            [
                plots.Bar(kind, x, max(width, 0.25), title)
                for kind, title, x, width in plots.stretches(bars[name], start, end)
            ],
        )
        for name in signs.LANES
        if name in bars and seconds[name] > 0
    ]
