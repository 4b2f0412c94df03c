"""What became of one line of a pipeline's input, stage by stage. Pure, and without anything that was asked or answered."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.access.roles import Viewer
from app.console.views import batch_items, pipeline_state, signs, text, times
from app.console.views.pipeline_filter import PATH
from app.engines.catalogue import Catalogue, Price
from app.engines.outcome import Usage
from app.engines.pricing import cost
from app.pipelines import lineage
from app.pipelines.lineage import Trace
from app.pipelines.listing import Listed
from app.queue.items import ItemFacts

MOST_ITEMS = 25  # of one stage on the page

_STATES = {
    "done": (signs.DONE, "done"),
    "failed": (signs.BROKEN, "failed"),
    "waiting": (signs.WAITS, "waits"),
    "to_come": (signs.WAITS, "to come"),
    "dropped": (signs.QUIET, "dropped"),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read."""

    listed: Listed
    custom_id: str
    traces: Sequence[Trace]
    models: Catalogue


def view(seen: Seen, viewer: Viewer, now: datetime) -> dict[str, Any]:
    """What the template needs."""
    row = seen.listed.row
    strong, rest = lede(seen)
    return {
        "path": f"{PATH}/{row.public_id}",
        "pipeline_name": pipeline_state.name_of(row),
        "custom_id": text.inert(seen.custom_id, 200)[0],
        "sign": _worst(seen.traces),
        "strong": strong,
        "rest": rest,
        "stages": [_stage(each, seen, viewer, now) for each in seen.traces],
        "cli": f"slackwater pipeline item {row.public_id} {text.inert(seen.custom_id, 80)[0]}",
    }


def _worst(traces: Sequence[Trace]) -> signs.Sign:
    states = {each.state for each in traces}
    state = next((each for each in ("failed", "waiting", "to_come") if each in states), "done")
    return _STATES[state][0]


def lede(seen: Seen) -> tuple[str, str]:
    """How far the line has come, and what it has cost."""
    ran = [each for each in seen.traces if pipeline_state.runs(each.stage)]
    failed = [each.stage.row.name for each in ran if each.state == "failed"]
    waits = [each for each in ran if each.state in {"waiting", "to_come"}]
    if failed:
        strong = f"It has failed in {pipeline_state.few(failed)}."
    elif waits:
        strong = f"It has come as far as {waits[0].stage.row.name}."
    else:
        strong = "It has gone through all stages."
    items = [(each, item) for each in ran for item in each.items]
    tokens = sum((item.prompt_tokens or 0) + (item.completion_tokens or 0) for _, item in items)
    found = [_cost(item, _price(trace, item, seen.models)) for trace, item in items]
    known = [each for each in found if each]
    shared = any(trace.shared for trace, _ in items)
    spent = f", {text.money(sum(known), _currency(seen))}" if known else ""
    least = "At least " if any(each.truncated for each in ran) else ""
    rest = f"{least}{text.plural(len(items), 'item')}, {text.compact(tokens)} tokens{spent}."
    return strong, rest + (" Packs have parts of other lines, too." if shared else "")


def _currency(seen: Seen) -> str:
    priced = (seen.models.resolve(each.stage.status.model) for each in seen.traces)
    return next((model.price.currency for model in priced if model and model.price), "USD")


def _price(trace: Trace, item: ItemFacts, models: Catalogue) -> Price | None:
    model = models.resolve(item.model or trace.stage.status.model) if trace.stage.status.endpoint else None
    return model.price if model else None


def _cost(item: ItemFacts, price: Price | None) -> float | None:
    if price is None or not item.prompt_tokens:
        return None
    return cost(price, Usage(item.prompt_tokens, item.cached_tokens or 0, item.completion_tokens or 0))


def _stage(trace: Trace, seen: Seen, viewer: Viewer, now: datetime) -> dict[str, Any]:
    row, status = trace.stage.row, trace.stage.status
    sign, words = _STATES[trace.state]
    shown = trace.items[:MOST_ITEMS]
    hidden = len(trace.items) - len(shown)
    more = f"{hidden:,} more" if not trace.truncated else "Many more"
    return {
        "name": row.name,
        "href": f"/console/batches/{row.request_id}",
        "model": status.model if status.endpoint else "",
        "sign": sign,
        "words": "stored" if not pipeline_state.runs(trace.stage) else words,
        "why": text.sentence(trace.why or ""),
        "shared": trace.shared and bool(trace.items),
        "items": [_item(item, trace, seen, viewer, now) for item in shown],
        "more": f"{more} of this line are on the page of the stage." if hidden else "",
    }


def _item(item: ItemFacts, trace: Trace, seen: Seen, viewer: Viewer, now: datetime) -> dict[str, Any]:
    state = lineage.state_of(item, trace.stage)
    sign, words = _STATES[state]
    why = trace.waits or ""
    if state == "failed":
        why = batch_items.message(item.code or 0, item.message or "", viewer)
    elif state != "waiting":
        why = ""
    if not pipeline_state.runs(trace.stage):
        words = "stored"
    elif item.ok and trace.stage.status.endpoint and not item.prompt_tokens:
        words = "passed on"
    price = _price(trace, item, seen.models)
    spent = _cost(item, price)
    return {
        "seq": f"{item.seq:,}",
        "href": f"/console/batches/{trace.stage.row.request_id}/items/{item.seq}",
        "sign": sign,
        "words": words,
        "why": why,
        "model": item.model or (trace.stage.status.model if trace.stage.status.endpoint else "–"),
        "prompt": text.count(item.prompt_tokens) if item.prompt_tokens else "–",
        "answer": text.count(item.completion_tokens) if item.completion_tokens else "–",
        "cost": text.money(spent, price.currency) if spent and price else "–",
        "ended": times.clock_time(item.finished_at, now) if item.finished_at else "–",
        "finished_at": item.finished_at,
    }
