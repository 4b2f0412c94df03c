"""The reports as JSON, the same on the API and the command line. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from app import clock
from app.engines import rate_card
from app.engines.catalogue import Model
from app.engines.rate_card import ALWAYS
from app.metering import explain_text, money, sketch
from app.metering.compare import MEASURES, Observed
from app.metering.explain import Term
from app.metering.harvest import Harvest
from app.metering.reports import LatencyRow
from app.metering.session_report import Session, SessionRow

_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def latency(by: Sequence[str], row: LatencyRow) -> dict[str, Any]:
    """Milliseconds; null where no time is known."""
    return {**_group(by, row.group), "first_token": _quantiles(row.first_token), "duration": _quantiles(row.duration)}


def session_row(by: Sequence[str], row: SessionRow) -> dict[str, Any]:
    """Sessions of one group. Slopes are tokens per request."""
    numbers = {name: value for name, value in asdict(row).items() if name != "group"}
    return {**_group(by, row.group), **numbers}


def session(by: Sequence[str], each: Session) -> dict[str, Any]:
    """One session."""
    numbers = {name: value for name, value in asdict(each).items() if name != "group"}
    return {**_group(by, each.group), **numbers}


def harvest(row: Harvest) -> dict[str, Any]:
    """What queued work used: tokens, hours of engines, its cost at its own prices, and at those of calls."""
    cost, listed = (None if each is None else float(each) for each in (row.cost, row.list_cost))
    hours, tokens = round(row.counts.engine_ms / 3_600_000, 3), row.counts.tokens
    return {"tokens": tokens, "engine_hours": hours, "cost": cost, "list_cost": listed, "currency": row.currency}


def prices(model: Model) -> list[dict[str, Any]]:
    """The rate card of a model, for a million tokens. `from` null: it always did hold; `until` null: no other price follows."""
    return [
        {
            "model": model.name,
            "work": held.work,
            "from": None if held.since == ALWAYS else clock.iso(held.since),
            "until": clock.iso(held.until),
            "input": float(held.rate.input),
            "cached_input": float(held.rate.cached_input),
            "output": float(held.rate.output),
            "currency": held.rate.currency,
        }
        for held in rate_card.history(model.card)
    ]


def explanation(by: str, currency: str, before: int, after: int, terms: Sequence[Term]) -> dict[str, Any]:
    """A change and its terms. Amounts are integers, 10^-9 of the currency, so that they add up."""
    return {
        "currency": currency,
        "before": before,
        "after": after,
        "change": after - before,
        "terms": [_term(by, term, currency) for term in terms],
    }


def comparison(seen: Mapping[str, Observed]) -> dict[str, Any]:
    """Each measure of both variants, with the bounds of its interval; `differs`: the intervals have nothing in common."""
    numbers = {}
    for measure in MEASURES:
        found = {name: measure.of(each) for name, each in seen.items()}
        first, second = found.values()
        differs = first is not None and second is not None and first.differs(second)
        variants = {name: None if each is None else each._asdict() for name, each in found.items()}
        numbers[measure.name] = {"unit": measure.unit, **variants, "differs": differs}
    requests = {name: each.total("requests") for name, each in seen.items()}
    return {"requests": requests, "currency": {name: each.currency for name, each in seen.items()}, "measures": numbers}


def _quantiles(counts: Sequence[int]) -> dict[str, Any]:
    found = {name: sketch.quantile(counts, q) for name, q in _QUANTILES.items()}
    return {"count": sum(counts), **{name: None if ms is None else round(ms, 1) for name, ms in found.items()}}


def _term(by: str, term: Term, currency: str) -> dict[str, Any]:
    group = {by: term.group.workflow, "model": term.group.model or None, "kind": term.group.kind or None}
    values = {"before": [float(value) for value in term.before], "after": [float(value) for value in term.after]}
    return {
        "factor": term.factor,
        **group,
        "amount": term.amount,
        "micros": money.micros(term.amount),
        **values,
        "text": explain_text.sentence(term, currency, by),
    }


def _group(by: Sequence[str], group: Sequence[str]) -> dict[str, Any]:
    return dict(zip(by, group, strict=True))
