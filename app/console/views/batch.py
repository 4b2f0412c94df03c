"""One batch: rows to words, figures and the drawing of its progress. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from app.access.roles import Viewer
from app.batches.why_chain import Why
from app.console.queries import ITEM_ROWS, BatchRow, EventRow, Running, Submitted
from app.console.views import batch_actions, batch_filter, batch_state, plots, signs, text, times
from app.console.views.batch_state import BATCH_FINAL
from app.console.views.figures import Figure, Part, figure
from app.console.views.plots import Plot, Word
from app.engines.catalogue import Catalogue
from app.queue.failures import FailureClass
from app.queue.items import ItemFacts
from app.queue.phases import Phase

_CONES = {"high": 0.2, "medium": 0.5, "low": 1.0}
_TABLE_ROWS = 12
_ITEM_TABS = {"all": "All", "answered": "Answered", "failed": "Failed"}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read. `progress`: times at which a sample of its items was done, and the size of the sample."""

    row: BatchRow
    why: Why | None
    running: Running
    kind: str
    items: Sequence[ItemFacts]
    failures: Sequence[FailureClass]
    submitted: Submitted
    events: Sequence[EventRow]
    progress: tuple[Sequence[datetime], int]
    phases: Sequence[Phase]
    models: Catalogue


def view(seen: Seen, viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of the page need."""
    row, why = seen.row, seen.why
    strong, rest = batch_state.lede(row, why, now)
    start, end = span(row, why, now)
    return {
        "row": row,
        "title": row.name,
        "strong": strong,
        "rest": rest,
        "sign": batch_state.standing(row, why, now).sign,
        "actions": batch_actions.of(row, batch_state.counts(row, why), viewer),
        "figures": figures(seen, now),
        "plot": drawing(seen, start, end, now),
        "table": [[times.clock_time(at, now), f"{done:,}"] for at, done in progress_table(seen, now)],
        "ticks": plots.ticks(
            start, end, ends="" if end > now or row.finalized_at else "now", now=now if end > now else None
        ),
        "since": times.clock_time(row.opened_at, now),
        "held": held(seen.phases, start, end, now),
        "timed": any(item.ran_ms is not None for item in seen.items),
        "now_at": round(100 * plots.place(now, start, end), 1) if end > now else None,
        "chain": batch_state.chain(why.chain if why else (), now),
        "cli_why": f"slackwater why {text.short(row.request_id)}",
        "errors": errors(seen.failures, viewer),
        **_items(seen, params, viewer),
        "events": [_event(event) for event in seen.events],
        "facts": facts(seen, viewer),
        "final": row.state in BATCH_FINAL,
    }


def span(row: BatchRow, why: Why | None, now: datetime) -> tuple[datetime, datetime]:
    """From the begin of the run to its end: past, expected, or now."""
    if row.finalized_at is not None:
        return row.opened_at, max(row.finalized_at, row.opened_at + timedelta(seconds=1))
    seconds = why.estimate.eta_seconds if why and why.estimate else None
    start = min(row.opened_at, now - timedelta(seconds=10))
    return start, now + timedelta(seconds=1.25 * (seconds or 0.0))


def figures(seen: Seen, now: datetime) -> list[Figure]:
    """At most five: done, end, pace, cost, cache."""
    row, why = seen.row, seen.why
    ok, failed = batch_state.counts(row, why)
    bad = "bad" if batch_state.many_failed(ok, failed) else ""
    words = [Part(f"{ok:,} answered")]
    if failed:
        words += [Part(", "), Part(f"{failed:,} failed", bad)]
    if seen.running.items:
        words.append(Part(f", {seen.running.items:,} with engines"))
    end = batch_state.ending(row, why, now)
    found = [figure("Done", text.percent((ok + failed) / row.total), "%", *words)]
    if row.finalized_at is not None:
        took = (row.finalized_at - row.opened_at).total_seconds()
        found.append(figure("Took", *_split(times.span(took)), f"ended {times.clock_time(row.finalized_at, now)}"))
    else:
        inside = f"in {times.span(end.seconds)}" if end.seconds is not None else ""
        due = Part(end.due, "warn" if end.late else "")
        found.append(figure("Ends", end.at or "–", inside, due, confidence=end.confidence))
    found.append(_pace(seen))
    spent = batch_state.costs(row, seen.models)
    if spent.so_far is not None:
        whole = f"of {text.money(spent.whole, spent.currency)}" if spent.whole and row.finalized_at is None else ""
        found.append(
            figure("Cost so far" if whole else "Cost", text.money(spent.so_far, spent.currency), whole, _tokens(row))
        )
    cached = row.cached_tokens / row.prompt_tokens if row.prompt_tokens else None
    value = "–" if cached is None else text.percent(cached)
    found.append(figure("Prompt tokens from cache", value, "" if cached is None else "%", _cached(row)))
    return found


def _tokens(row: BatchRow) -> str:
    return f"{text.compact(row.prompt_tokens)} tokens in, {text.compact(row.completion_tokens)} out"


def _cached(row: BatchRow) -> str:
    return (
        f"{text.compact(row.cached_tokens)} of {text.compact(row.prompt_tokens)}" if row.prompt_tokens else "none yet"
    )


def _split(words: str) -> tuple[str, str]:
    """A length of time as a value and its unit."""
    value, _, unit = words.partition(text.NBSP)
    return value, unit


def _pace(seen: Seen) -> Figure:
    row, estimate = seen.row, seen.why.estimate if seen.why else None
    if estimate is not None and estimate.tokens_per_second:
        value, unit = text.si(estimate.tokens_per_second)
        return figure("Pace", value, f"{unit} tok/s".strip(), f"{estimate.share:.0%} of its pool")
    took = ((row.finalized_at or row.opened_at) - row.opened_at).total_seconds()
    used = row.prompt_tokens + row.completion_tokens
    if row.finalized_at is None or took <= 0 or not used:
        return figure("Pace", "–", "", "not measured yet")
    value, unit = text.si(used / took)
    return figure("Pace", value, f"{unit} tok/s".strip(), "over the whole run")


def drawing(seen: Seen, start: datetime, end: datetime, now: datetime) -> Plot:
    """Items done over time, and the cone of the forecast."""
    row, why = seen.row, seen.why
    ok, failed = batch_state.counts(row, why)
    done = ok + failed
    moment = min(now, row.finalized_at or now)
    sample, size = seen.progress
    top = 0.93  # the height at which all items are done
    inside = [at for at in sample if at >= start]
    before = len(sample) - len(inside)
    points = [(0.0, top * before / max(size, 1))]
    points += [
        (plots.place(at, start, end), top * min(done / row.total, (before + n) / size))
        for n, at in enumerate(inside, 1)
    ]
    here = (plots.place(moment, start, end), top * done / row.total)
    points.append(here)
    shapes = [plots.area(points, "a-water"), plots.line(points, "l-water")]
    words: list[Word] = []
    estimate = why.estimate if why else None
    if row.finalized_at is None and estimate is not None and estimate.eta_seconds:
        shapes += _cone(here, now, estimate.eta_seconds, _CONES.get(str(estimate.confidence), 1.0), start, end, top)
        at = 100 * plots.place(now + timedelta(seconds=estimate.eta_seconds), start, end)
        words.append(Word(min(at, 96), 7, batch_state.ending(row, why, now).at, 0, 18, "end" if at > 80 else "", "k"))
        right = here[0] > 0.75
        words.append(
            Word(
                100 * here[0],
                100 - 100 * here[1],
                f"{done:,} done",
                -8 if right else 8,
                16,
                "end" if right else "",
                "k",
            )
        )
    elif row.finalized_at is None:
        words.append(Word(100, 100 - 100 * here[1], f"{done:,} done", -8, -8 if here[1] < 0.5 else 16, "end", "k"))
    label = f"Items done since {times.clock_time(start, now)}: {done:,} of {row.total:,}"
    grid = [tick.x for tick in plots.ticks(start, end)[1:-1]]
    now_at = round(100 * here[0], 1) if row.finalized_at is None and end > now else None
    return Plot(label, shapes, grid, caps=[100 - 100 * top], words=words, now=now_at)


def progress_table(seen: Seen, now: datetime) -> list[tuple[datetime, int]]:
    """The drawing in numbers: some times, and the items that were done by then."""
    sample, size = seen.progress
    ok, failed = batch_state.counts(seen.row, seen.why)
    step = max(1, len(sample) // _TABLE_ROWS)
    found = [(at, min(ok + failed, round(n / size * seen.row.total))) for n, at in enumerate(sample, 1)][::step]
    return [*found, (min(now, seen.row.finalized_at or now), ok + failed)]


def _cone(
    here: plots.Point, now: datetime, seconds: float, spread: float, start: datetime, end: datetime, top: float
) -> list[plots.Shape]:
    def at(factor: float) -> float:
        return plots.place(now + timedelta(seconds=seconds * factor), start, end)

    sides = [here, (at(max(0.3, 1 - spread)), top), (at(1 + spread), top)]
    return [
        plots.Shape("a-cone", plots.line(sides, "").path + "Z"),
        plots.line([here, (at(1.0), top)], "l-cone"),
    ]


def errors(found: Sequence[FailureClass], viewer: Viewer) -> list[dict[str, Any]]:
    """The failures by class, the most frequent first. Roles of the installation see no message, which may quote a prompt."""
    most = max((each.count for each in found), default=1)
    return [
        {
            "count": f"{each.count:,}",
            "meter": plots.meter(f"{each.count:,}", most, ("bad", each.count)),
            "code": each.error,
            "words": message(each.code or 0, each.message or "", viewer),
            "href": f"/console/batches?view=all&q=error:{each.error}",
        }
        for each in found
    ]


_MEANINGS = {
    3007: "no answer in time",
    3040: "no capacity",
    5001: "the engine failed",
    5006: "the request is invalid",
    5007: "there is no such model",
}
_MESSAGE_CHARACTERS = 200


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


def message(code: int, words: str, viewer: Viewer) -> str:
    """An error in words: as the engine or the checks said it, or in general for a role that sees no bodies."""
    if not viewer.role.of_account:
        return _MEANINGS.get(code, "failed")
    shown, _ = text.inert(words, 4 * _MESSAGE_CHARACTERS)
    return shown[:_MESSAGE_CHARACTERS] + ("…" if len(shown) > _MESSAGE_CHARACTERS else "")


def _items(seen: Seen, params: Mapping[str, str], viewer: Viewer) -> dict[str, Any]:
    row = seen.row
    path = f"/console/batches/{row.request_id}"
    ok, failed = batch_state.counts(row, seen.why)
    numbers = {"all": row.total, "answered": ok, "failed": failed}
    shown, more = seen.items[:ITEM_ROWS], len(seen.items) > ITEM_ROWS
    older = batch_filter.address(path, items=seen.kind, **{"from": str(shown[-1].seq + 1)}) + "#items" if more else ""
    newer = batch_filter.address(path, items=seen.kind) + "#items" if params.get("from") else ""
    return {
        "tabs": [
            {
                "name": name,
                "href": batch_filter.address(path, items=key) + "#items",
                "here": key == seen.kind,
                "count": f"{numbers[key]:,}",
            }
            for key, name in _ITEM_TABS.items()
        ],
        "items": [_item(item, row, viewer) for item in shown],
        "kind": seen.kind,
        "total": f"{row.total:,}",
        "pages": {
            "words": f"{len(shown):,} of {numbers[seen.kind]:,}",
            "older": older,
            "newer": newer,
            "names": ("From the begin", "Next"),
            "cli": f"slackwater results {text.short(row.request_id)}" + (" --errors" if seen.kind == "failed" else ""),
        },
    }


def _item(item: ItemFacts, row: BatchRow, viewer: Viewer) -> dict[str, Any]:
    sign, words, code = outcome(item, row, viewer)
    cached = f"({item.cached_tokens:,})" if item.cached_tokens else ""
    return {
        "seq": item.seq,
        "href": f"/console/batches/{row.request_id}/items/{item.seq}",
        "reference": text.inert(item.reference or "", 200)[0],
        "sign": sign,
        "words": words,
        "code": code,
        "prompt": text.count(item.prompt_tokens) if item.ok is not None else "–",
        "cached": cached,
        "answer": text.count(item.completion_tokens) if item.completion_tokens else "–",
        "ran": times.span(item.ran_ms / 1000) if item.ran_ms is not None else "–",
        "tries": item.attempt or 1 if item.ok is not None else "–",
        "ended": times.seconds_time(item.finished_at),
        "finished_at": item.finished_at,
    }


def outcome(item: ItemFacts, row: BatchRow, viewer: Viewer) -> tuple[signs.Sign, str, str]:
    """What became of an item: sign, words, and the code of its error."""
    if item.ok:
        return signs.DONE, "answered", ""
    if item.ok is False:
        return signs.BROKEN, message(item.code or 0, item.message or "", viewer), item.error or "failed"
    if row.finalized_at is not None:
        return signs.QUIET, "did not run", ""
    return signs.WAITS, "waits", ""


_DELIVERIES = {
    "delivered": (signs.DONE, "accepted"),
    "pending": (signs.WAITS, "waits to be sent"),
    "held": (signs.PAUSED, "held, as the endpoint is not active"),
    "sending": (signs.RUNS, "is being sent"),
    "dead": (signs.BROKEN, "given up"),
}


def _event(event: EventRow) -> dict[str, Any]:
    sign, words = _DELIVERIES.get(event.state or "", (signs.QUIET, ""))
    tries = f" after {text.plural(event.attempts, 'attempt')}" if event.attempts and event.attempts > 1 else ""
    return {
        "at": event.at,
        "time": times.seconds_time(event.at),
        "sign": sign,
        "code": event.kind,
        "words": f"to {event.endpoint}" if event.endpoint else "",
        "sub": f"{words}{tries}" if event.endpoint else "nobody has subscribed to it",
    }


def facts(seen: Seen, viewer: Viewer) -> list[tuple[str, str, bool]]:
    """How it came: name, value, and whether the value is code."""
    row, came = seen.row, seen.submitted
    by = row.account + (f", key {came.key}" if came.key else "")
    found = [("By", by, False), ("Model", row.model, True), ("Endpoint", row.endpoint, True)]
    if came.filename:
        size = f", {text.size(came.bytes)}" if came.bytes else ""
        found.append(("As", f"batch of {text.inert(came.filename, 200)[0]}{size}", False))
    window = (
        "no deadline" if row.expires_at is None else f"{times.span((row.expires_at - row.opened_at).total_seconds())}"
    )
    found.append(("Window", f"{window}, run {row.run}", False))
    labels = [value for value in (came.workflow, came.task) if value and value != "-"]
    if labels:
        found.append(("Workflow, task", ", ".join(labels), False))
    named = [*row.tags, *(f"{name}={value}" for name, value in (row.metadata or {}).items())]
    if named:
        found.append(("Tags, metadata", text.inert(", ".join(named), 600)[0], True))
    if row.traceparent:
        found.append(("Trace", row.traceparent.split("-")[1], True))
    found.append(("Submitted", times.iso(row.created_at), False))
    return found
