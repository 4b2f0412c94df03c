"""A webhook that somebody wants to make: what the form shows, and what its fields mean. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from app.engines.catalogue import Catalogue
from app.errors import BadInput
from app.events import KINDS, USUAL_KINDS
from app.webhooks.endpoints import EventFilter
from app.webhooks.formats import FORMATS, known_kinds
from app.webhooks.validation import DeliveryLimits, usual_name

PATH = "/console/webhooks/new"
_FORMATS = {
    "workers_ai": "Workers AI",
    "openai": "OpenAI",
    "standard": "Standard Webhooks",
    "cloudevents": "CloudEvents",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a webhook is made with. What it holds is checked where it is registered."""

    url: str
    name: str
    kinds: Sequence[str]
    shape: str
    of: EventFilter
    limits: DeliveryLimits


def wanted(form: Mapping[str, str], kinds: Sequence[str], models: Catalogue) -> Wanted:
    """What the fields of the form mean. Without a name it is its host; without events, the usual ones. Raises BadInput."""
    url, shape = form.get("url", ""), form.get("format", "")
    known = models.resolve(form.get("model", ""))
    if form.get("model") and known is None:
        raise BadInput(f"model: {models.unknown(form['model'])}")
    return Wanted(
        url,
        form.get("name") or usual_name(url),
        kinds or known_kinds(shape, USUAL_KINDS),
        shape,
        EventFilter(known.name if known else None, form.get("tags", "").split()),
        DeliveryLimits(max_per_second=_rate(form.get("rate", "")), ordered=form.get("ordered") == "on"),
    )


def _rate(given: str) -> float | None:
    try:
        return float(given) if given else None
    except ValueError:
        raise BadInput("rate: must be a number of deliveries a second, or empty") from None


def view(form: Mapping[str, str], kinds: Sequence[str], problem: str, account: str, rule: str) -> dict[str, Any]:
    """What the template of the form needs. `form`, `kinds`: what was filled in; empty at first. `rule`: what a URL must be."""
    chosen = set(kinds or ([] if form else USUAL_KINDS))
    groups = groupby(KINDS, key=lambda kind: kind.partition(".")[0])
    return {
        "given": form,
        "problem": problem,
        "account": account,
        "rule": rule,
        "formats": [(name, _FORMATS.get(name, name)) for name in FORMATS],
        "groups": [(name, [(str(kind), kind in chosen) for kind in members]) for name, members in groups],
        "back": "/console/webhooks",
        "cli": "slackwater subscription create https://example.com/hook",
    }
