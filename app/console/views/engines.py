"""All engines: do they serve, and what do they leave to batch work. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.batches import why_text
from app.console.queries import EngineRow
from app.console.queries_engines import Tide
from app.console.views import batch_filter, engine_plots, plots, signs, text, time_range, times
from app.console.views.batches import few
from app.console.views.engine_plots import Frame
from app.console.views.figures import Figure, figure
from app.console.views.signs import Sign
from app.headroom.samples import callers_rate
from app.states import EngineIntake

PATH = "/console/engines"
USUAL_RANGE = "1h"
POINTS = 120
AS_REPORTED = "as workers reported; what a killed one had not is missing"  # Spend counts results, and misses nothing
_MOST = 0.9  # of a time, from which on all of it is said to be known


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read."""

    engines: Sequence[EngineRow]
    more: bool
    tides: Mapping[int, Sequence[Tide]]
    shown: Frame


def view(seen: Seen, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of the page need."""
    shown = time_range.given(params, now, USUAL_RANGE)
    last = seen.engines[-1].name if seen.engines else ""
    return {
        "title": title(seen.engines),
        "sign": worst(seen.engines),
        "rest": rest(seen.engines),
        "figures": figures(seen),
        "ranges": time_range.choices(PATH, shown, USUAL_RANGE),
        "rows": [_row(each, seen) for each in seen.engines],
        "ticks": plots.ticks(seen.shown.start, seen.shown.end, ends=shown.ends),
        "first": bool(params.get("after")),
        "next": batch_filter.address(PATH, **{each: params.get(each, "") for each in time_range.PARAMS}, after=last)
        if seen.more
        else "",
        "start": PATH,
    }


def title(engines: Sequence[EngineRow]) -> str:
    """How many engines serve."""
    ready, known = sum(each.ready for each in engines), len(engines)
    if not known:
        return "No engine has a worker"
    if ready == known:
        return f"{text.sentence(few(known))} {'engine serves' if known == 1 else 'engines serve'}"
    if not ready:
        return "No engine serves"
    engine, serve = ("engine" if known == 1 else "engines"), ("serves" if ready == 1 else "serve")
    return f"{text.sentence(few(ready))} of {few(known)} {engine} {serve}"


def worst(engines: Sequence[EngineRow]) -> Sign:
    """The sign of the engine about which somebody should care most."""
    order = (signs.BROKEN, signs.AWAY, signs.LOOK)
    shown = [sign_of(each) for each in engines]
    return next((sign for sign in order if sign in shown), signs.DONE if engines else signs.AWAY)


def rest(engines: Sequence[EngineRow]) -> str:
    """What is remarkable: engines that do not serve, are drained, or are closed to batch work. At most three sentences."""
    said = []
    for each in sorted(engines, key=lambda each: each.ready):
        if not each.ready or each.intake != EngineIntake.OPEN or (each.allowance == 0 and not calm(each)):
            said.append(gate_words(each, named=True) + ".")
    if not said and engines:
        return "Batch work gets what callers leave." if len(engines) > 1 else "It gives batch work what callers leave."
    if not engines:
        return "A worker beside an engine registers it here."
    others = len(said) - 3
    return " ".join(said[:3]) + (f" And {few(others)} more." if others > 0 else "")


def calm(each: EngineRow) -> bool:
    """Whether the gate has no reason to be closed, though nothing is allowed at this moment."""
    return each.code in {"open", "harvest", "hold", "ramp"}


def sign_of(each: EngineRow) -> Sign:
    """The sign of an engine: its gate, or that an operator has drained it."""
    if each.ready and each.intake != EngineIntake.OPEN:
        return signs.PAUSED
    return signs.gate(each.code, ready=each.ready, is_open=each.allowance > 0)


def gate_words(each: EngineRow, *, named: bool = False) -> str:
    """What an engine does with batch work, and why."""
    name = each.name if named else ""
    if each.ready and each.intake != EngineIntake.OPEN:
        return f"{name} is drained by an operator".strip()
    words = engine_words(name, each)
    return words.replace(" (`slackwater engine undrain` ends it)", "").strip()


def engine_words(name: str, each: EngineRow) -> str:
    """What an engine does, why, and for how long, as `why` and the status say it."""
    return why_text.engine(name, each, usual=None if each.ready else each.usual_seconds)


def figures(seen: Seen) -> list[Figure]:
    """At most five numbers."""
    ready = [each for each in seen.engines if each.ready]
    batch, sync = (sum(getattr(each, name) for each in ready) for name in ("batch_in_flight", "sync_in_flight"))
    slots = sum(each.slots for each in ready)
    tides = [each for tide in seen.tides.values() for each in tide]
    harvested, callers = sum(each.batch_tokens for each in tides), sum(each.sync_tokens for each in tides)
    seconds = sum(each.seconds for each in tides)
    closed = sum(each.closed_seconds for each in tides)
    shown, each_knows = (seen.shown.end - seen.shown.start).total_seconds(), seconds / max(1, len(seen.tides))
    value, unit = text.si(harvested)
    share = (
        f"{text.percent(harvested / (harvested + callers))} % of all, {AS_REPORTED}"
        if harvested + callers
        else "none yet"
    )
    return [
        figure("Serve", f"{len(ready)} of {len(seen.engines)}", "", "answer and have a worker"),
        figure("Callers in engines", f"{sync:,}" if ready else "–", "", f"of {text.plural(slots, 'slot')}"),
        figure(
            "Batch with engines",
            f"{batch:,}" if ready else "–",
            "",
            f"{sum(each.allowance for each in ready):,} allowed now",
        ),
        figure("Tokens for batches", value if tides else "–", f"{unit} tokens".strip() if tides else "", share),
        figure(
            "Gates open",
            text.percent(1 - closed / seconds) if seconds else "–",
            "%" if seconds else "",
            f"of the {known_time(each_knows, shown) or 'time shown'}" if seconds else "not known yet",
        ),
    ]


def known_time(seconds: float, whole: float) -> str:
    """How much of a time is known: "7 min that are known"; nothing where that is most of it."""
    return "" if seconds >= _MOST * whole else f"{times.span(seconds)} that are known"


def _row(each: EngineRow, seen: Seen) -> dict[str, Any]:
    samples = seen.tides.get(each.engine_id, [])
    last = samples[-1] if samples and (seen.shown.end - samples[-1].at).total_seconds() < 60 else None
    folded = [(tide.at, tide.seconds, tide.reason, tide.closed_seconds) for tide in samples]
    return {
        "name": each.name,
        "href": f"{PATH}/{each.name}",
        "model": each.model or "no model",
        "layer": layer(each),
        "heard": each.heard if each.heard.startswith("silent") else f"last report {each.heard}",
        "sign": sign_of(each),
        "words": gate_words(each),
        "plot": engine_plots.tide(each.name, samples, seen.shown),
        "gate": engine_plots.folded_gate(each.name, folded, seen.shown),
        "undrawn": "" if samples else undrawn(each),
        "batch": f"{last.batch_tokens / last.seconds:,.0f}" if last and last.seconds else "–",
        "sync": text.count(callers_rate(last.sync_tokens, last.seconds, each.sync_in_flight) if last else None),
        "in_flight": f"{each.batch_in_flight:,}" if each.alive else "–",
    }


def undrawn(each: EngineRow) -> str:
    """Why there is no drawing of an engine in the time shown."""
    if each.ready:
        return "It has served since, and its worker has stored no sample of this time."
    return "Nothing is known of this time: it did not serve, or has not served yet."


def layer(each: EngineRow) -> str:
    """How callers are protected: L2 inside the engine's scheduler, L1 from outside. Empty: its worker cannot know it yet."""
    return "" if not each.ready else "L2" if each.protection == "inside" else "L1"
