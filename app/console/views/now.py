"""Now: engines, callers and open batches to words. The drawings are in `now_plots`. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.access.roles import Viewer
from app.batches import why_text
from app.batches.incidents import Incident
from app.batches.protection import LIMIT, Protection, Verdict
from app.batches.queue_outlook import ModelQueue
from app.console.queries import MOST_COUNTED, EngineRow, WaitRow
from app.console.views import batch_filter, now_plots, now_queue, plots, problems, signs, text, time_range, times
from app.console.views.batches import few
from app.console.views.engines import AS_REPORTED, engine_words, layer
from app.console.views.figures import Figure, Part, figure
from app.console.views.problems import Problems
from app.console.views.signs import Sign
from app.console.views.time_range import TimeRange
from app.headroom.samples import StoredSample
from app.quantities import milliseconds
from app.states import EngineIntake

PATH = "/console/now"
USUAL_RANGE = "1h"
_UNCOUNTED = "; one of the last 20 s may not be yet"  # the gateway stores them, and this page reads them, each 10 s
_QUIET_CODES = {"open", "harvest", "ramp", "hold", "full", "deadline_ramp", "shrink_latency"}


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is drawn of this time: the samples by engine, and how long callers waited."""

    shown: TimeRange
    history: Mapping[int, Sequence[StoredSample]]
    calls: Protection


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue by model at a moment."""

    at: datetime
    models: Sequence[ModelQueue]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read. `open`: how many batches are open, at most MOST_COUNTED."""

    engines: Sequence[EngineRow]
    open: int
    drawn: Drawn
    queue: Queue
    waits: Sequence[WaitRow]
    events: Sequence[Incident]
    problems: Problems = ()

    @property
    def calls(self) -> Protection:
        """How long callers waited in the time that is shown."""
        return self.drawn.calls

    @property
    def history(self) -> Mapping[int, Sequence[StoredSample]]:
        """The samples of each engine of the time that is shown."""
        return self.drawn.history


def view(seen: Seen, viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of the page need."""
    sign, title = headline(seen)
    strong, rest = sentences(seen)
    shown = seen.drawn.shown
    start, end = shown.start, shown.end
    return {
        "sign": sign,
        "title": title,
        "strong": strong,
        "rest": rest,
        "ranges": time_range.choices(PATH, shown, USUAL_RANGE),
        "last": shown.words,
        "problems": problems.shown(_unsaid(seen, title)),
        "figures": figures(seen, viewer, now),
        "engines": [engine(each, seen.history.get(each.engine_id, ()), shown, now) for each in seen.engines],
        "counted": (sum(each.ready for each in seen.engines), len(seen.engines)),
        "ticks": plots.ticks(start, end, ends=shown.ends),
        "first_token": now_plots.latency(seen.calls, "first_token_p95", start, end),
        "gap": now_plots.latency(seen.calls, "gap_p95", start, end),
        "tide_table": now_plots.tide_table({each.engine_id: each.name for each in seen.engines}, seen.history),
        "first_token_table": now_plots.latency_table(seen.calls, "first_token_p95"),
        "gap_table": now_plots.latency_table(seen.calls, "gap_p95"),
        "no_calls": text.sentence(no_stream(live=shown.live)) + ".",
        "has_calls": seen.calls.everything.requests > 0,
        "requests": f"{text.plural(seen.calls.everything.requests, 'stream')}, {seen.calls.beside.requests:,} beside batch",
        **now_queue.view(seen.queue.models, seen.queue.at),
        "waits": waits(seen.waits, now),
        "open": f"{seen.open:,}{'+' if seen.open >= MOST_COUNTED else ''} open",
        "events": [event(each) for each in seen.events],
    }


def _unsaid(seen: Seen, title: str) -> Problems:
    """The problems without the one that the title is."""
    return [each for each in seen.problems if not _is(each, title)]


def _is(problem: Mapping[str, Any], title: str) -> bool:
    return str(problem["message"]) == f"{title}."


def headline(seen: Seen) -> tuple[Sign, str]:
    """Whether synchronous callers are served and protected; what is broken comes before that."""
    ready = [each for each in seen.engines if each.ready]
    if not any(each.alive for each in seen.engines):
        return signs.BROKEN if seen.engines else signs.AWAY, "No engine has a worker"
    if not ready:
        return signs.BROKEN, "No engine answers"
    if seen.calls.verdict == Verdict.SLOWED:
        return signs.LOOK, seen.calls.headline
    if errors := [each for each in seen.problems if each["severity"] == "error"]:
        return signs.BROKEN, problems.title(errors)
    blind = [each for each in ready if signs.gate(each.code, ready=True, is_open=each.allowance > 0) is signs.BROKEN]
    if blind:
        return signs.LOOK, f"{blind[0].name} cannot be seen, so batch work has stopped there"
    return signs.DONE if seen.calls.verdict == Verdict.PROTECTED else signs.QUIET, seen.calls.headline


def sentences(seen: Seen) -> tuple[str, str]:
    """How long callers wait, if the headline is of them, or what ends the problem that it is; and what is remarkable about
    engines, in at most three sentences.
    """
    said = [_gate(each) + "." for each in seen.engines if not each.ready or each.code not in _QUIET_CODES]
    if not said and seen.engines:
        number = len(seen.engines)
        verb = "engine gives" if number == 1 else "engines give"
        said.append(f"{text.sentence(few(number))} {verb} batch work what callers leave.")
    if not seen.open:
        said.append("No batch is open.")
    title = headline(seen)[1]
    details = seen.calls.details if title == seen.calls.headline else ""
    details = next((str(each["remedy"]) for each in seen.problems if _is(each, title)), details)
    return details, " ".join(said[:3])


def _gate(each: EngineRow) -> str:
    return text.sentence(engine_words(each.name, each))


def figures(seen: Seen, viewer: Viewer, now: datetime) -> list[Figure]:
    """At most five numbers."""
    calls = seen.calls
    pace = now_plots.pace(seen.history, now)
    down = {each.engine_id for each in seen.engines if not each.ready}
    rates = [now_plots.latest(history, now)[0] for engine_id, history in seen.history.items() if engine_id not in down]
    known = [rate for rate in rates if rate is not None] if seen.drawn.shown.live else pace[-1:]
    value, unit = text.si(sum(known) if known else None)
    whose = "" if viewer.tenant_id is None else "of all accounts, "
    samples = [each.sample for history in seen.history.values() for each in history]
    done, done_unit = text.si(sum(each.batch_tokens for each in samples) if samples else None)
    slots = sum(each.slots for each in seen.engines if each.ready)
    batch = sum(each.batch_in_flight for each in seen.engines if each.ready)
    shown = seen.drawn.shown
    when = f"in the {shown.words}" if shown.live else f"from {shown.words}"
    return [
        _milliseconds("First token, p95", calls, "first_token_p95", calls.first_token_ratio, when, live=shown.live),
        _milliseconds("Between tokens, p95", calls, "gap_p95", calls.gap_ratio, when, live=shown.live),
        figure("Harvest", value, f"{unit} tok/s".strip() if known else "",
               whose + (_lately(seen) + _places(batch, slots) if slots else "no engine is ready"),
               spark=plots.spark(pace, "h")),
        _waiting(seen),
        figure("Tokens for batches", done, f"{done_unit} tokens".strip() if samples else "", f"{whose}{when}, {AS_REPORTED}"),
    ]  # fmt: skip


def _lately(seen: Seen) -> str:
    """Of which time the pace is: the newest stretch, which requests that have ended since are part of."""
    newest = [history[-1].sample.seconds for history in seen.history.values() if history]
    return f"over {times.span(max(newest))}; now " if newest else ""


def _places(batch: int, slots: int) -> str:
    """Batch requests are counted at the workers, which may hold more than the engines have slots."""
    return f"{text.plural(batch, 'batch request')} with engines of {text.plural(slots, 'slot')}"


def no_stream(*, live: bool) -> str:
    """That no stream is known of the time shown. Those that ended last are not counted yet."""
    return f"no synchronous stream counted in this time{_UNCOUNTED if live else ''}"


def _milliseconds(name: str, calls: Protection, quantile: str, ratio: float | None, when: str, *, live: bool) -> Figure:
    """Of the whole time shown, beside batch work, as the strong line of the plot below; of all answers if none ran beside."""
    beside, alone = getattr(calls.beside, quantile), getattr(calls.alone, quantile)
    value = beside if beside is not None else getattr(calls.everything, quantile)
    if value is None:
        return figure(name, "–", "", no_stream(live=live))
    if ratio is not None:
        words = Part(
            f"beside batch work {when}, {ratio:.2f} × alone; limit {LIMIT:.2f}", "warn" if ratio > LIMIT else ""
        )
    elif beside is None:
        streams = text.plural(calls.everything.requests, "stream")
        words = Part(f"of {streams} alone {when}; no batch work ran beside")
    else:
        streams = text.plural(calls.beside.requests, "stream")
        others = f"{milliseconds(alone)} ms alone, of {calls.alone.requests:,}" if alone is not None else ""
        words = Part(f"of {streams} beside batch work {when}; {others or 'none alone yet'}")
    return figure(name, milliseconds(value), "ms", words, spark=now_plots.spark(calls, quantile))


def _waiting(seen: Seen) -> Figure:
    left, ends = now_queue.waiting(seen.queue.models, seen.queue.at)
    value, unit = text.si(left or None)
    batches = text.plural(seen.open, "batch", "batches")
    return figure(
        "Waiting", value if left else f"{seen.open:,}", f"{unit} tokens".strip() if left else "", f"{batches}{ends}"
    )


def engine(each: EngineRow, history: Sequence[StoredSample], shown: TimeRange, now: datetime) -> dict[str, Any]:
    """An engine's name, what its gate does, its numbers and its tide."""
    sign = signs.gate(each.code, ready=each.ready, is_open=each.allowance > 0)
    words = engine_words("", each).strip()
    if each.code in _QUIET_CODES and not each.overdue:  # what is normal is said in few words
        words = why_text.gate("", each.code, None, None, None, None).strip()
    if each.intake != EngineIntake.OPEN:
        words = "drained by an operator"
    harvest, sync = now_plots.latest(history, now) if each.ready else (None, None)
    drawn, gate = now_plots.tide(each.name, history, shown.start, shown.end)
    return {
        "name": each.name,
        "model": each.model or "no model",
        "layer": layer(each),
        "sign": sign,
        "words": words,
        "harvest": text.count(harvest),
        "sync": text.count(sync),
        "in_flight": f"{each.batch_in_flight:,}" if each.alive else "–",
        "plot": drawn,
        "ribbon": gate,
    }


def waits(found: Sequence[WaitRow], now: datetime) -> list[dict[str, Any]]:
    """What batches wait for, by reason: those that run first, then the most frequent."""
    groups: dict[tuple[str, Sign], list[WaitRow]] = {}
    for wait in found:
        sign, _, words = signs.waiting(wait.code)
        groups.setdefault((words, sign), []).append(wait)
    ordered = sorted(
        groups.items(), key=lambda group: (group[0][1] is not signs.RUNS, -sum(w.batches for w in group[1]))
    )
    return [_group(sign, words, group, now) for (words, sign), group in ordered]


def _group(sign: Sign, words: str, group: Sequence[WaitRow], now: datetime) -> dict[str, Any]:
    tokens = sum(each.tokens or 0.0 for each in group)
    href = batch_filter.address("/console/batches", q=f"waits:{group[0].code}") if len(group) == 1 else ""
    return {
        "sign": sign,
        "words": words,
        "href": href,
        "count": f"{sum(each.batches for each in group):,}",
        "tokens": text.compact(tokens) if tokens else "–",
        "longest": "–" if sign is signs.RUNS else times.span((now - min(each.since for each in group)).total_seconds()),
    }


def event(each: Incident) -> dict[str, Any]:
    """An incident as an entry of the feed."""
    sign = signs.LOOK if each.trouble else signs.NOTE
    if each.trouble and each.kind in {"engine.down", "worker.lost", "part.died", "up.killed", "database.lost"}:
        sign = signs.BROKEN
    at = each.position.at
    words = text.about_part(each.message)
    return {"at": at, "time": f"{at:%H:%M}", "sign": sign, "code": "", "words": words, "sub": ""}
