"""One batch: rows to words and figures. `batch_progress` has its drawing, `batch_items` its items. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.access.roles import Viewer
from app.batches.why_chain import Why
from app.console.queries import BatchRow, EventRow, Submitted
from app.console.queries_items import ItemPage
from app.console.views import batch_actions, batch_items, batch_progress, batch_state, plots, signs, text, times
from app.console.views.batch_progress import Progress
from app.console.views.batch_state import BATCH_FINAL
from app.console.views.figures import Figure, Part, figure
from app.engines.catalogue import Catalogue
from app.pipelines.listing import Named
from app.queue import item_counts
from app.queue.failures import FailureClass
from app.queue.phases import Phase


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read. `pipeline`: of which it is a stage."""

    row: BatchRow
    why: Why | None
    items: ItemPage
    failures: Sequence[FailureClass]
    submitted: Submitted
    events: Sequence[EventRow]
    progress: Progress
    phases: Sequence[Phase]
    models: Catalogue
    pipeline: Named | None = None


def view(seen: Seen, viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of the page need."""
    row, why = seen.row, seen.why
    strong, rest = _INPUT if row.is_input else batch_state.lede(row, why, now)
    start, end = batch_progress.span(row, why, now)
    return {
        "row": row,
        "above": above(seen.pipeline),
        "is_input": row.is_input,
        "title": row.name,
        "strong": strong,
        "rest": rest,
        "sign": batch_state.standing(row, why, now).sign,
        "actions": batch_actions.of(row, batch_state.counts(row, why), viewer),
        "figures": figures(seen, now),
        "plot": batch_progress.drawing(row, why, seen.progress, start, end, now),
        "table": [
            [times.clock_time(at, now), f"{done:,}"]
            for at, done in batch_progress.progress_table(row, why, seen.progress, now)
        ],
        "ticks": plots.ticks(
            start, end, ends="" if end > now or row.finalized_at else "now", now=now if end > now else None
        ),
        "since": times.clock_time(row.opened_at, now),
        "held": batch_progress.held(seen.phases, start, end, now),
        "now_at": round(100 * plots.place(now, start, end), 1) if end > now else None,
        "chain": batch_state.chain(why.chain if why else (), now),
        "cli_why": f"slackwater why {text.short(row.request_id)}",
        "errors": batch_items.errors(seen.failures, viewer),
        **batch_items.view(row, batch_state.counts(row, why), seen.items, params, viewer),
        "events": [_event(event) for event in seen.events],
        "facts": facts(seen, viewer),
        "final": row.state in BATCH_FINAL,
    }


_INPUT = "The input of a pipeline.", "Its lines do not run: the stages behind it read them."


def above(pipeline: Named | None) -> dict[str, str]:
    """The list or the pipeline that a batch belongs to: its name and its address."""
    if pipeline is None:
        return {"name": "Batches", "href": "/console/batches"}
    return {"name": text.inert(pipeline.shown, 200)[0], "href": f"/console/pipelines/{pipeline.public_id}"}


def figures(seen: Seen, now: datetime) -> list[Figure]:
    """At most five: done, end, pace, cost, cache. An input has one."""
    row, why = batch_state.live(seen.row, seen.why), seen.why
    if row.is_input:
        return [figure("Lines", f"{row.total:,}", "", "more come" if row.finalized_at is None else "complete")]
    ok, failed = batch_state.counts(row, why)
    bad = "bad" if batch_state.many_failed(ok, failed) else ""
    words = [Part(f"{ok:,} answered")]
    if failed:
        words += [Part(", "), Part(f"{failed:,} failed", bad)]
    items = batch_state.items(row, why)
    if not items.ended:
        places = item_counts.words(items.queued, items.claimed, items.in_engine, items.returns_at)
        words.append(Part(f", {places}"))
    end = batch_state.ending(row, why, now)
    found = [figure("Done", text.percent((ok + failed) / max(1, row.total)), "%", *words)]
    if row.finalized_at is not None:
        took = (row.finalized_at - row.opened_at).total_seconds()
        found.append(figure("Took", *_split(times.span(took)), f"ended {times.clock_time(row.finalized_at, now)}"))
    else:
        inside = f"in {times.span(end.seconds)}" if end.seconds is not None else ""
        due = Part(f"{end.unknown}, {end.due}" if end.unknown else end.due, "warn" if end.late else "")
        found.append(figure("Ends", end.at or "–", inside, due, confidence=end.confidence))
    found.append(_pace(seen))
    spent = batch_state.costs(row, seen.models)
    if spent.so_far is not None:
        whole = f"of {text.money(spent.whole, spent.currency)}" if spent.whole and row.finalized_at is None else ""
        found.append(
            figure(
                "Cost" if row.finalized_at else "Cost so far",
                text.money(spent.so_far, spent.currency),
                whole,
                _tokens(row),
            )
        )
    cached = row.cached_tokens / row.prompt_tokens if row.prompt_tokens else None
    value = "–" if cached is None else text.percent(cached)
    found.append(figure("Prompt tokens from cache", value, "" if cached is None else "%", _cached(row)))
    return found


def _tokens(row: BatchRow) -> str:
    return f"{text.compact(row.prompt_tokens)} tokens in, {text.compact(row.completion_tokens)} out"


def _cached(row: BatchRow) -> str:
    if not row.prompt_tokens:
        return "none"
    return f"{text.compact(row.cached_tokens)} of {text.compact(row.prompt_tokens)}"


def _split(words: str) -> tuple[str, str]:
    """A length of time as a value and its unit."""
    value, _, unit = words.partition(text.NBSP)
    return value, unit


def _pace(seen: Seen) -> Figure:
    row, estimate = seen.row, seen.why.estimate if seen.why else None
    if seen.why and seen.why.waiting and row.finalized_at is None:
        return figure("Pace", "–", "", "nothing of it runs")
    if estimate is not None and estimate.tokens_per_second:
        value, unit = text.si(estimate.tokens_per_second)
        return figure("Pace", value, f"{unit} tok/s".strip(), f"{estimate.share:.0%} of its pool")
    took = ((row.finalized_at or row.opened_at) - row.opened_at).total_seconds()
    used = row.prompt_tokens + row.completion_tokens
    if row.finalized_at is None or took <= 0 or not used:
        unknown = seen.why.no_eta if seen.why else None
        return figure("Pace", "–", "", unknown or "not known")
    value, unit = text.si(used / took)
    return figure("Pace", value, f"{unit} tok/s".strip(), "over the whole run")


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
