"""One engine: what it does, why its gate is as it is, and what it did before. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from app import places
from app.access.roles import Viewer
from app.batches import why_text
from app.changes.service import Change
from app.console.queries import EngineRow
from app.console.queries_engines import Day, EngineDetail, GateChange
from app.console.views import (
    batch_filter,
    engine_plots,
    engines,
    incidents,
    plots,
    signs,
    text,
    time_range,
    times,
)
from app.console.views.batch_actions import Action
from app.console.views.engine_plots import Frame, Held
from app.console.views.time_range import TimeRange
from app.engines import warnings
from app.engines.adoption import EngineProblem
from app.headroom.decision_log import LoggedChange
from app.headroom.samples import EngineSample, StoredSample, callers_rate
from app.states import EngineIntake

USUAL_RANGE = "15m"
POINTS = 120
MOST_DECISIONS = 30  # on one page
_TABS = {"all": "All", "closed": "Closed", "failures": "Failures"}
_MOST_SQUARES = 256
_COLUMNS = 32
_DRAWN = {"step_seconds", "quiet_seconds"}  # of one moment; the plot of steps says the same of its time
_FRESH = timedelta(seconds=30)
_DAY = 86_400.0
_TO_AND_FRO = 5.0  # seconds between two decisions of which one takes the other back


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read. `gates`: changes in the time shown; None where samples show them. `latest`: the newest sample.
    `closings`: (signal, value). `begun`: when it served first. `replaced`: since when it has the name that another one had.
    """

    engine: EngineRow
    detail: EngineDetail
    samples: Sequence[StoredSample]
    latest: StoredSample | None
    gates: Sequence[GateChange] | None
    day: Day
    decisions: Sequence[LoggedChange]
    more: bool
    changes: Sequence[Change]
    closings: Sequence[tuple[str, float]]
    kv_ceiling: float
    shown: Frame
    begun: datetime | None
    replaced: datetime | None = None


def view(seen: Seen, viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of the page need."""
    each, path = seen.engine, f"{engines.PATH}/{seen.engine.name}"
    shown = time_range.given(params, now, USUAL_RANGE)
    strong, rest = lede(seen, now)
    fresh = _fresh(seen, now)
    last = seen.samples[-1].sample if seen.samples and (fresh or not shown.live) else None
    drawn = engine_plots.panels(seen.samples, last, held(each, last), seen.kv_ceiling, seen.shown)
    return {
        "name": each.name,
        "model": each.model,
        "sign": engines.sign_of(each),
        "strong": strong,
        "rest": rest,
        "ranges": time_range.choices(path, shown, USUAL_RANGE),
        "actions": actions(each, seen.detail, viewer, path),
        "panels": drawn,
        "sampled": bool(seen.samples),
        "unsampled": unsampled(seen, shown),
        "ribbon": _ribbon(seen),
        "ticks": plots.ticks(seen.shown.start, seen.shown.end, ends=shown.ends),
        "table": _table(seen.samples),
        "waffle": waffle(held(each, fresh)) if each.ready and each.slots else None,
        "layer": engines.layer(each),
        "facts": facts(seen, viewer),
        "problems": warnings.reported(each.problems, alive=each.alive, free=each.free)[0],
        "warnings": _warnings(each, seen.detail),
        "closings": [(name, _closing(name, value, seen)) for name, value in seen.closings],
        "changes": [_change(change) for change in seen.changes],
        **_decisions(seen, params, path),
    }


def _warnings(each: EngineRow, detail: EngineDetail) -> list[EngineProblem]:
    """What it does not report, and protection that could be closer."""
    if not each.ready:
        return []
    _, unknown = warnings.reported(each.problems, alive=each.alive, free=each.free)
    return unknown + warnings.of_engine(
        mode=detail.mode,
        dialect=detail.dialect,
        scheduling_policy=detail.scheduling_policy,
        protection=each.protection,
        errors=[problem["code"] for problem in each.problems],
    )


def _closing(signal: str, value: float, seen: Seen) -> str:
    """The value at which a signal closes the gate. Long steps never close it: they make batch work less."""
    if signal == "step_seconds":
        now = _step_limit(seen)
        least = f"{why_text.amount(signal, value)} or more" if now is None else f"{why_text.amount(signal, now)} now"
        return f"shrinks above {least}"
    if signal == "telemetry":
        return "unreadable"
    return why_text.amount(signal, value) + (f" of {seen.engine.slots:,}" if signal == "load" else "")


def _step_limit(seen: Seen) -> float | None:
    """How long a step should take at most, by the newest that is known: it grows with the steps of callers."""
    each = seen.engine
    if each.ready and each.signal == "step_seconds" and each.threshold:
        return each.threshold
    if seen.latest is not None and seen.latest.sample.allowed_ms and seen.latest.sample.sync:
        return seen.latest.sample.allowed_ms / 1000
    return next(
        (e.change.threshold for e in seen.decisions if e.change.signal == "step_seconds" and e.change.threshold), None
    )


def lede(seen: Seen, now: datetime) -> tuple[str, str]:
    """What it does now, and how it was in the last day."""
    each, said = seen.engine, []
    drawn = each.signal in _DRAWN
    strong = text.sentence(engines.gate_words(replace(each, signal=None) if drawn else each)) + "."
    last = _fresh(seen, now)
    if last and last.frozen >= 1 and each.ready:
        frozen = round(last.frozen)
        kept = "is frozen and keeps its memory." if frozen == 1 else "are frozen and keep their memory."
        said.append(f"{text.plural(frozen, 'batch request')} {kept}")
    if each.intake != EngineIntake.OPEN:
        left = each.batch_in_flight + each.sync_in_flight
        inside = (
            f"{text.plural(left, 'request')} {'is' if left == 1 else 'are'} still in it."
            if left
            else "Nothing is in it."
        )
        said += [inside] if each.alive else []
    late = not each.alive or (each.usual_seconds is not None and each.held_seconds > each.usual_seconds)
    if seen.detail.expected and seen.detail.expected >= 1 and not late:
        said.append(f"It is back in about {times.span(seen.detail.expected)} if it takes as long as lately.")
    if seen.replaced and seen.replaced > seen.shown.start:
        said.append(
            f"It has its name since {times.clock_time(seen.replaced, now)}; what another engine did before is not drawn."
        )
    if seen.day.seconds:
        share = text.percent(1 - seen.day.closed_seconds / seen.day.seconds)
        known = engines.known_time(seen.day.seconds, _DAY)
        when = f"In the {known} of the last day" if known else "In the last day"
        said.append(f"{when} its gate was open {share}{text.NBSP}% of the time.")
    return strong, " ".join(said)


def actions(each: EngineRow, detail: EngineDetail, viewer: Viewer, path: str) -> list[Action]:
    """Drain and undrain, for an operator: an engine belongs to the installation."""
    if not viewer.role.acts or viewer.role.of_account:
        return []
    inside = text.plural(each.batch_in_flight, "batch request")
    if each.intake != EngineIntake.OPEN:
        words = f"Callers and batch work get {each.name} again. Its gate decides how much batch work it takes."
        found = [
            Action("undrain", "Undrain", f"{path}/undrain", f"Undrain {each.name}?", words,
                   cli=f"slackwater engine undrain {each.name}", icon="play", primary=True)
        ]  # fmt: skip
        if each.intake == EngineIntake.DRAINING:
            found.append(_drain_now(each, path, inside))
        return found
    words = (
        f"No new request goes to {each.name}: neither batch work nor synchronous requests through the gateway. {inside} and "
        f"{each.sync_in_flight:,} of callers in it finish. This stays so through restarts, until somebody undrains it."
    )
    drain = Action("drain", "Drain", f"{path}/drain", f"Drain {each.name}?", words, confirm="Drain",
                   cli=f"slackwater engine drain {each.name}", icon="pause", danger=True)  # fmt: skip
    return [drain, _drain_now(each, path, inside)]


def _drain_now(each: EngineRow, path: str, inside: str) -> Action:
    words = (
        f"As a drain, and {inside} in it {'goes' if each.batch_in_flight == 1 else 'go'} back to the queue at once, to run on "
        "another engine. What callers have in it finishes."
    )
    return Action("drain-now", "Drain now", f"{path}/drain-now", f"Drain {each.name} now?", words, confirm="Drain now",
                  cli=f"slackwater engine drain --now {each.name}", danger=True)  # fmt: skip


def _fresh(seen: Seen, now: datetime) -> EngineSample | None:
    """What the engine does now. None: it is down, or its worker has not said it lately."""
    return seen.latest.sample if seen.latest and seen.engine.ready and now - seen.latest.at < _FRESH else None


def held(each: EngineRow, sample: EngineSample | None) -> Held:
    """The slots of an engine by what holds them: as its newest sample has it, else as its worker and the gateways count."""
    if sample is None:
        return Held.of(each.sync_in_flight, each.batch_in_flight, 0, each.slots)
    return Held.of(sample.sync, sample.batch, sample.frozen, each.slots)


def unsampled(seen: Seen, shown: TimeRange) -> str:
    """Why there is nothing to draw."""
    if seen.begun is None:
        return f"{seen.engine.name} has not served yet. It is drawn from its first start on, every ten seconds."
    if not shown.live:
        return "Its worker stored no sample in this time: it did not run, or the time is more than 35 days ago."
    return "No worker has seen it in this time, so nothing is known of it. A worker stores a sample every ten seconds."


def waffle(slots: Held) -> dict[str, Any]:
    """Each slot as a square, or several slots a square where there are many: callers, batch, frozen, free."""
    number = max(slots.sync + slots.batch + slots.free, 1)
    kinds = {"s": slots.sync, "h": slots.batch - slots.frozen, "z": slots.frozen}
    each_square = max(1, -(-number // _MOST_SQUARES))
    shown = [kind for kind, amount in kinds.items() for _ in range(round(amount / each_square))]
    squares = -(-number // each_square)
    shown = (shown + ["n"] * squares)[:squares]
    rows = max(1, -(-squares // _COLUMNS))
    places = [(kind, 10 * (n // rows), 10 * (n % rows)) for n, kind in enumerate(shown)]
    words = (
        f"{number:,} slots: {slots.sync:,} of callers, {slots.batch:,} of batch work, {slots.frozen:,} of them frozen, "
        f"{slots.free:,} free"
    )
    return {
        "label": words,
        "places": places,
        "width": 10 * -(-squares // rows) - 2,
        "height": 10 * rows - 2,
        "sync": slots.sync,
        "batch": slots.batch - slots.frozen,
        "frozen": slots.frozen,
        "free": slots.free,
        "queued": slots.queued,
        "total": f"{number:,}" + (f", {each_square} a square" if each_square > 1 else ""),
    }


def facts(seen: Seen, viewer: Viewer) -> list[tuple[str, str, bool]]:
    """Name, value, and whether the value is code. On which machine it runs is for roles of the installation."""
    each, detail, day = seen.engine, seen.detail, seen.day
    kind = {"vllm": "vLLM"}.get(detail.dialect, detail.dialect)
    found = [("Engine", f"{kind} {detail.version or ''}".strip(), False)]
    found.append(("Started by", "Slackwater" if detail.mode == "managed" else "somebody else, attached", False))
    if detail.scheduling_policy:
        found.append(("Scheduler", detail.scheduling_policy, False))
    if detail.max_model_len:
        found.append(("Context window", text.plural(detail.max_model_len, "token"), False))
    if detail.served_name and detail.served_name != each.model:
        found.append(("Calls its model", detail.served_name, True))
    if day.seconds:
        found.append(("Tokens for batches in a day", f"{text.compact(day.batch_tokens)}, {engines.AS_REPORTED}", False))
        found.append(("Made way in a day", f"{text.plural(day.yields, 'time')}, {day.evictions:,} evicted", False))
    if detail.start_seconds:
        found.append(("A start took lately", times.span(detail.start_seconds), False))
    found.append(("Last report", each.heard, False))
    if not viewer.role.of_account:
        lease = f", lease {times.span(detail.lease)}" if detail.lease else ""
        found.append(("Worker", f"{detail.host}:{detail.pid}{lease}" if detail.host and each.alive else "none", False))
        found.append(("Address", detail.url, True))
    return found


def _ribbon(seen: Seen) -> plots.Ribbon:
    if seen.gates is not None:
        return engine_plots.gate(seen.engine.name, seen.gates, seen.samples, seen.shown)
    folded = [(e.at, e.sample.seconds, e.sample.reason, e.sample.closed_seconds) for e in seen.samples]
    return engine_plots.folded_gate(seen.engine.name, folded, seen.shown)


def _table(samples: Sequence[StoredSample]) -> list[list[str]]:
    """The drawings as a table of at most twenty rows, the newest first."""
    step = max(1, len(samples) // 20)
    rows = []
    for each in list(reversed(samples))[::step]:
        s = each.sample
        rate = [
            text.count(callers_rate(s.sync_tokens, s.seconds, s.sync)),
            text.count(callers_rate(s.batch_tokens, s.seconds, 0)),
        ]
        kv = "–" if s.kv_usage is None else f"{text.percent(s.kv_usage)} %"
        step_ms = "–" if s.step_ms is None else f"{s.step_ms:.1f} ms"
        rows.append(
            [
                times.seconds_time(each.at),
                *rate,
                f"{s.sync:,.0f}",
                f"{s.batch:,.0f}",
                kv,
                step_ms,
                f"{s.allowance:,.0f}",
            ]
        )
    return rows


def _decisions(seen: Seen, params: Mapping[str, str], path: str) -> dict[str, Any]:
    kind, shown = params.get("log", "all"), {each: params.get(each, "") for each in time_range.PARAMS}
    last, folded = seen.decisions[-1] if seen.decisions else None, _folded(seen.decisions)
    older = newer = ""
    if seen.more and last:
        place = places.written(last.at, last.decision_id)
        older = batch_filter.address(path, **shown, log=kind if kind != "all" else "", before=place) + "#h-log"
    if params.get("before"):
        newer = batch_filter.address(path, **shown, log=kind if kind != "all" else "") + "#h-log"
    return {
        "tabs": [
            {"name": name, "href": batch_filter.address(path, **shown, log=key if key != "all" else "") + "#h-log",
             "here": key == kind, "count": ""}
            for key, name in _TABS.items()
        ],
        "log": kind,
        "decisions": [_decision(each, folded[n + 1] if n + 1 < len(folded) else None) for n, each in enumerate(folded)],
        "pages": {"names": (), "cli": "", "words": f"{text.plural(len(folded), 'decision')}, newest first",
                  "older": older, "newer": newer},
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Folded:
    """A decision; those after it that changed nothing, newest first; and the first of a row of decisions to and fro that ends
    with it, with their number.
    """

    entry: LoggedChange
    again: Sequence[LoggedChange] = ()
    first: LoggedChange | None = None
    turns: int = 1

    @property
    def began(self) -> datetime:
        """When it was made, or the first of its row."""
        return (self.first or self.entry).at


def _folded(rows: Sequence[LoggedChange]) -> list[Folded]:
    """The decisions that changed something, newest first."""
    found: list[Folded] = []
    again: list[LoggedChange] = []
    for row in rows:
        of = row.change
        if (of.reason, of.allowance) == (of.was_reason, of.was_allowance):
            again.append(row)
        elif found and not again and _turns_back(found[-1], row):
            found[-1] = replace(found[-1], first=row, turns=found[-1].turns + 1)
        else:
            if again and again[-1].change.reason != of.reason:  # of another worker
                found.append(Folded(again[-1], again[:-1]))
                again = []
            found.append(Folded(row, again))
            again = []
    if again and not found:
        found.append(Folded(again[-1], again[:-1]))
    return found


def _turns_back(later: Folded, row: LoggedChange) -> bool:
    """Whether a decision takes a gate from where a later one takes it back to, within seconds."""
    after, of = (later.first or later.entry), row.change
    soon = (after.at - row.at).total_seconds() <= _TO_AND_FRO
    return soon and (of.was_reason, of.reason) == (after.change.reason, after.change.was_reason)


def _decision(each: Folded, before: Folded | None) -> dict[str, Any]:
    entry, again, row = each.entry, each.again, each.entry.change
    newest = (again[0] if again else entry).change
    because = why_text.decided(row.reason, newest.signal, newest.value, newest.threshold, newest.detail)
    compared = bool(row.signal and why_text.measure(row.signal, row.value, row.threshold))
    went_on = (
        before and before.entry.change.reason == (each.first or entry).change.was_reason
    )  # else a new worker began
    lasted = times.span((each.began - before.entry.at).total_seconds()) if before and went_on else ""
    repeated = f"{text.plural(len(again), 'time')} more, the last at {_tenths(again[0].at)}" if again else ""
    if each.turns > 1:
        repeated = f"{each.turns} changes to and fro since {_tenths(each.began)}"
    changed = row.reason != row.was_reason
    return {
        "at": entry.at,
        "time": _tenths(entry.at),
        "again": repeated,
        "layer": row.layer.upper(),
        "sign": signs.gate(row.reason, ready=True, is_open=row.allowance > 0),
        "reason": row.reason,
        "words": signs.gate_words(row.reason),
        "was": row.was_reason if changed else "",
        "was_words": signs.gate_words(row.was_reason) if changed else "",
        "lasted": lasted,
        "was_allowance": f"{row.was_allowance:,}" if row.was_allowance != row.allowance else "",
        "allowance": f"{row.allowance:,}",
        "because": text.inert(because, 400)[0],
        "value": why_text.amount(row.signal, row.value) if compared and row.signal else "",
        "threshold": why_text.amount(row.signal, row.threshold)
        if compared and row.signal and row.threshold is not None
        else "",
        "in_flight": f"{row.in_flight:,}",
    }


def _tenths(moment: datetime) -> str:
    return f"{moment:%H:%M:%S}.{moment.microsecond // 100_000}"


def _change(change: Change) -> dict[str, Any]:
    return {
        "at": change.at,
        "time": f"{change.at:%-d %b, %H:%M}",
        "sign": incidents.sign_of(change.kind),
        "code": "",
        "words": incidents.words(change),
        "sub": "",
    }
