"""Now: engines, pools and open batches to words. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.access.roles import Viewer
from app.batches import why_text
from app.batches.why_chain import Why
from app.console.queries import MOST_COUNTED, EngineRow, PoolRow
from app.console.views import signs, text, times
from app.console.views.batches import few
from app.console.views.figures import Figure, figure
from app.console.views.signs import Sign
from app.states import EngineIntake


@dataclass(frozen=True, slots=True)
class Wait:
    """What an open batch waits for (`running`: it does not), since when, and about how many tokens it still needs."""

    code: str
    model: str
    since: datetime | None
    tokens: float

    @classmethod
    def of(cls, why: Why) -> "Wait":
        """From its chain. Its tokens are those that its share of the pace and its ETA leave."""
        estimate, waiting = why.estimate, why.waiting
        tokens = 0.0
        if estimate is not None and estimate.eta_seconds and estimate.tokens_per_second:
            tokens = estimate.eta_seconds * estimate.tokens_per_second
        return cls(waiting.code if waiting else "running", why.status.model, waiting.since if waiting else None, tokens)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read. `open`: how many batches are open, at most MOST_COUNTED; `waits`: of the oldest of them."""

    engines: Sequence[EngineRow]
    pools: Sequence[PoolRow]
    open: int
    waits: Sequence[Wait]


def view(seen: Seen, viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of the page need."""
    sign, title = headline(seen.engines)
    return {
        "sign": sign,
        "title": title,
        "rest": rest(seen),
        "figures": figures(seen),
        "engines": [engine(each) for each in seen.engines],
        "waits": waits(seen.waits, now),
        "open": f"{seen.open:,}{'+' if seen.open >= MOST_COUNTED else ''} open",
    }


def headline(engines: Sequence[EngineRow]) -> tuple[Sign, str]:
    """Whether synchronous callers are served and protected."""
    ready = [each for each in engines if each.ready]
    if not engines:
        return signs.AWAY, "No engine has a worker"
    if not ready:
        return signs.BROKEN, "No engine answers"
    blind = [each for each in ready if signs.gate(each.code, ready=True, is_open=each.allowance > 0) is signs.BROKEN]
    if blind:
        return signs.LOOK, f"{blind[0].name} cannot be seen, so batch work has stopped there"
    return signs.DONE, "Synchronous callers are protected"


def rest(seen: Seen) -> str:
    """What is remarkable about engines and gates, in at most three sentences."""
    said = []
    for each in seen.engines:
        if not each.ready or (each.allowance == 0 and each.code not in {"open", "harvest"}):
            said.append(_gate(each) + ".")
    if not said and seen.engines:
        number = len(seen.engines)
        said.append(
            f"{text.sentence(few(number))} {'engine gives' if number == 1 else 'engines give'} batch work what callers leave."
        )
    if not seen.open:
        said.append("No batch is open.")
    return " ".join(said[:3])


def _gate(each: EngineRow) -> str:
    held = max(0.0, each.held_seconds)
    return text.sentence(why_text.gate(each.name, each.code, each.signal, each.value, each.threshold, held))


def figures(seen: Seen) -> list[Figure]:
    """At most five numbers."""
    batch = sum(each.batch_in_flight for each in seen.engines)
    sync = sum(each.sync_in_flight for each in seen.engines)
    slots = sum(each.slots for each in seen.engines if each.ready)
    pace = sum(pool.pace or 0.0 for pool in seen.pools)
    waiting = sum(wait.tokens for wait in seen.waits)
    pace_value, pace_unit = text.si(pace or None)
    wait_value, wait_unit = text.si(waiting or None)
    ready = sum(each.ready for each in seen.engines)
    return [
        figure("Callers in engines", f"{sync:,}", "", f"of {slots:,} slots"),
        figure("Batch in engines", f"{batch:,}", "", f"{sum(each.allowance for each in seen.engines):,} allowed now"),
        figure("Pace of batches", pace_value, f"{pace_unit} tok/s".strip(), "over the last minutes with work"),
        figure(
            "Waiting",
            wait_value,
            f"{wait_unit} tokens".strip() if waiting else "",
            f"{text.plural(seen.open, 'batch', 'batches')} open",
        ),
        figure("Engines", f"{ready} of {len(seen.engines)}", "", "answer and have a worker"),
    ]


def engine(each: EngineRow) -> dict[str, Any]:
    """An engine's name, what its gate does, and its numbers."""
    sign = signs.gate(each.code, ready=each.ready, is_open=each.allowance > 0)
    words = why_text.gate("", each.code, each.signal, each.value, each.threshold, max(0.0, each.held_seconds)).strip()
    if each.intake != EngineIntake.OPEN:
        words = "drained by an operator"
    return {
        "name": each.name,
        "model": each.model or "no model",
        "layer": "L2" if each.protection == "inside" else "L1",
        "sign": sign,
        "words": words,
        "batch": f"{each.batch_in_flight:,}",
        "sync": f"{each.sync_in_flight:,}",
        "allowance": f"{each.allowance:,}",
    }


def waits(found: Sequence[Wait], now: datetime) -> list[dict[str, Any]]:
    """What batches wait for, by reason: those that run first, then the most frequent."""
    groups: dict[tuple[str, Sign], list[Wait]] = {}
    for wait in found:
        sign, _, words = signs.waiting(wait.code)
        groups.setdefault((words, sign), []).append(wait)
    ordered = sorted(groups.items(), key=lambda group: (group[0][1] is not signs.RUNS, -len(group[1])))
    return [
        {
            "sign": sign,
            "words": words,
            "count": f"{len(group):,}",
            "tokens": text.compact(sum(each.tokens for each in group)) if any(each.tokens for each in group) else "–",
            "longest": _longest(group, now),
        }
        for (words, sign), group in ordered
    ]


def _longest(group: Sequence[Wait], now: datetime) -> str:
    since = [each.since for each in group if each.since]
    return times.span((now - min(since)).total_seconds()) if since else "–"
