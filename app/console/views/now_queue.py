"""The queue of Now: what waits by model, how urgent it is, and the forecast of when it will be done. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from app.batches import why_text
from app.batches.queue_outlook import ModelQueue
from app.console.views import plots, text, times
from app.console.views.plots import Plot, Reading, Series, Shape, Word

_POINTS = 48
_MARGIN = 1.12  # the axis goes beyond the end by this much
_HEAD = 1.12
_USUAL_SPREAD, _LEAST_SPREAD, _MOST_SPREAD = 0.5, 0.05, 0.9  # of a forecast; the first where none was measured
_MOST_MODELS = 8


def view(queue: Sequence[ModelQueue], now: datetime) -> dict[str, Any]:
    """What the template of the queue needs."""
    end = ending(queue)
    return {
        "queue": [_row(each, now) for each in queue[:_MOST_MODELS]],
        "queue_more": max(0, len(queue) - _MOST_MODELS),
        "queue_words": _words(queue),
        "forecast": forecast(queue, now) if end else None,
        "no_forecast": _no_forecast(queue),
        "forecast_ticks": _ticks(queue, now) if end else [],
        "forecast_head": ["At", "Tokens left"],
        "forecast_table": _table(queue, now) if end else [],
    }


def ending(queue: Sequence[ModelQueue]) -> float | None:
    """Seconds until everything that can run is done, of the models for which that is known. None: of none."""
    return max((each.seconds for each in queue if each.seconds and each.able > 0), default=None)


def _words(queue: Sequence[ModelQueue]) -> str:
    pace = sum(each.pace or 0.0 for each in queue if each.engines)
    return f"{text.compact(pace)} estimated tokens/s in the last minutes" if pace else ""


def _no_forecast(queue: Sequence[ModelQueue]) -> str:
    """Why there is none, of the model with the most that can run."""
    most = max(queue, key=lambda each: each.able, default=None)
    if most is None or most.able <= 0:
        return "nothing of it can run"
    return why_text.no_eta(most.missing, most.model, still=most.still)


def _row(each: ModelQueue, now: datetime) -> dict[str, Any]:
    sub = text.plural(each.batches, "batch", "batches")
    if each.held:
        sub += f"; {text.compact(each.held)} held" if each.able else "; all held"
    hour, day = each.urgent
    return {
        "model": each.model,
        "sub": sub,
        "tokens": text.compact(each.tokens),
        "hour": text.compact(hour) if hour else "–",
        "day": text.compact(day) if day else "–",
        "pace": text.compact(each.pace) if each.pace and each.engines else "–",
        "done": _done(each, now),
        "late": each.able > 0 and each.seconds is None,
    }


def _done(each: ModelQueue, now: datetime) -> str:
    if not each.able:
        return "once released"
    if not each.engines:
        return "no engine"
    return "not known" if each.seconds is None else times.clock_time(now + timedelta(seconds=each.seconds), now)


def _spread(each: ModelQueue) -> float:
    known = _USUAL_SPREAD if each.spread is None else each.spread
    return min(_MOST_SPREAD, max(_LEAST_SPREAD, known))


def _left(queue: Sequence[ModelQueue], seconds: float, spread: int = 0) -> float:
    """Tokens that are left after so many seconds. `spread`: 1 if everything takes as long as it may, -1 as short."""
    return sum(
        each.able * max(0.0, 1 - seconds / (each.seconds * (1 + spread * _spread(each))))
        for each in queue
        if each.seconds
    )


def _last(queue: Sequence[ModelQueue], now: datetime) -> datetime:
    """The end of the axis: the latest end within the usual error."""
    latest = max(each.seconds * (1 + _spread(each)) for each in queue if each.seconds and each.able > 0)
    return now + timedelta(seconds=max(60.0, latest * _MARGIN))


def _ticks(queue: Sequence[ModelQueue], now: datetime) -> list[plots.Tick]:
    first, *rest = plots.ticks(now, _last(queue, now), ends="")
    return [replace(first, text="now"), *rest]


def forecast(queue: Sequence[ModelQueue], now: datetime) -> Plot:
    """The tokens that are left from now until they are done, with the usual error. A model without a pace is not drawn."""
    end = ending(queue) or 0.0
    last = _last(queue, now)
    whole = (last - now).total_seconds()
    top = _left(queue, 0) * _HEAD
    ends = [each.seconds * (1 + sign * _spread(each)) for each in queue if each.seconds for sign in (-1, 0, 1)]
    moments = sorted({0.0, whole, *ends, *(whole * n / _POINTS for n in range(_POINTS))})

    def line(spread: int) -> list[plots.Point]:
        return [(at / whole, _left(queue, at, spread) / top) for at in moments]

    inside = [(x, y) for x, y in line(0) if x <= end / whole]
    shapes = [
        plots.area(inside, "a-q"),
        plots.area(line(1), "a-cone", line(-1)),
        Shape("l-cone", plots.line(inside, "").path),
    ]
    label = f"Tokens that can run, {text.compact(_left(queue, 0))} now, until they are done {_when(queue, now)}"
    reading = Reading(
        now,
        last,
        [now + timedelta(seconds=at) for at in moments],
        [Series("left", "tokens", [_left(queue, at) for at in moments], "harvest")],
        zooms=False,
    )
    grid = [tick.x for tick in plots.ticks(now, last, ends="")[1:-1]]
    return Plot(label, shapes, grid, words=_marks(queue, now), reading=reading)


def _marks(queue: Sequence[ModelQueue], now: datetime) -> list[Word]:
    left, right = _range(queue, now)
    return [
        Word(0, 100 - 100 / _HEAD, f"{text.compact(_left(queue, 0))} can run now", 0, -6, "", "k"),
        Word(100, 30, f"done {_when(queue, now)}", 0, 0, "end", "k"),
        Word(100, 30, f"{left} to {right}", 0, 15, "end"),
    ]


def _when(queue: Sequence[ModelQueue], now: datetime) -> str:
    return f"at {times.clock_time(now + timedelta(seconds=ending(queue) or 0.0), now)}"


def _range(queue: Sequence[ModelQueue], now: datetime) -> tuple[str, str]:
    """The earliest and the latest end within the usual error, to the second where both are near."""
    known = [each for each in queue if each.seconds and each.able > 0]
    both = [max((each.seconds or 0.0) * (1 + sign * _spread(each)) for each in known) for sign in (-1, 1)]
    shown = [now + timedelta(seconds=each) for each in both]
    if both[1] - both[0] < 120:
        return times.seconds_time(shown[0]), times.seconds_time(shown[1])
    return times.clock_time(shown[0], now), times.clock_time(shown[1], now)


def _table(queue: Sequence[ModelQueue], now: datetime) -> list[list[str]]:
    end = ending(queue) or 0.0
    return [
        [times.clock_time(now + timedelta(seconds=end * n / 10), now), text.count(_left(queue, end * n / 10))]
        for n in range(11)
    ]


def waiting(queue: Sequence[ModelQueue], now: datetime) -> tuple[float, str]:
    """The tokens of the queue, and when what can run ends; empty: not known."""
    end = ending(queue)
    words = f"; what can run ends at about {times.clock_time(now + timedelta(seconds=end), now)}" if end else ""
    return sum(each.tokens for each in queue), words
