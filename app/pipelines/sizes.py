"""How large the requests of stages are, as far as a sample of the input says. What comes of answers counts as an answer of its
stage. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from app.batches.validation.text_generation import USUAL_BYTES_PER_TOKEN, ItemError, ItemFacts
from app.engines.catalogue import Model
from app.errors import BadInput
from app.flows import problems, rendering, templates
from app.flows.counting import numbers, width
from app.flows.given import slots
from app.flows.items import Lineage
from app.flows.language import MISSING, Fields, resolve
from app.flows.reads import in_part
from app.flows.stages import INPUT, MOST_REQUEST_BYTES, Again, BySize, Definition, OfStage, Request, Stage
from app.flows.templates import Room, Slot, Template
from app.pipelines import models
from app.pipelines.drafting import Order
from app.queue.answer_lengths import UsualLength


@dataclass(frozen=True, slots=True)
class Size:
    """Tokens of one request: the most that the sample has."""

    prompt: float
    answer: float


def of(order: Order, usual: UsualLength, lines: int, sample: Sequence[Lineage]) -> dict[int, Size]:
    """By stage, the size of a request. `lines`: of the input; `sample`: some of them."""
    found, counts = {INPUT: Size(0.0, 0.0)}, numbers(order.flow, lines)
    for stage in order.flow.stages:
        work = stage.work
        if isinstance(work, Again):
            first = found[work.of]
            found[stage.number] = Size(first.prompt + (first.answer if work.with_answer else 0), first.answer)
        elif isinstance(work, Request):
            parts = _parts(order.flow, stage, counts[stage.parent])
            sizes = [_size(order, stage, work, usual, found, parts, each) for each in sample or [Lineage()]]
            found[stage.number] = Size(max(each.prompt for each in sizes), max(each.answer for each in sizes))
        else:
            found[stage.number] = found[stage.parent]
    return found


def partly(body: Mapping[str, Any], scope: Fields) -> dict[str, Any]:
    """A body with what is known. What is not stays a placeholder."""

    def value(of: Any) -> Any:
        if isinstance(of, Template):
            return _text(of, scope)
        if isinstance(of, dict):
            return {name: value(each) for name, each in of.items()}
        return [value(each) for each in of] if isinstance(of, list) else of

    return {name: value(each) for name, each in body.items()}


def _text(template: Template, scope: Fields) -> Any:
    if all(_is_known(slot, scope) for slot in template.slots):
        try:
            return rendering.filled(template, scope, Room(MOST_REQUEST_BYTES))
        except problems.ItemError:
            pass
    return "".join(each if isinstance(each, str) else _piece(each, scope) for each in template.pieces)


def _is_known(slot: Slot, scope: Fields) -> bool:
    value = resolve(slot.path, scope)
    return any(each is not MISSING and each is not None for each in (value if isinstance(value, tuple) else (value,)))


def _piece(slot: Slot, scope: Fields) -> str:
    """What a placeholder inserts; itself if that is not known."""
    if not _is_known(slot, scope):
        return str(slot)
    try:
        return templates.inserted(slot, scope, Room(MOST_REQUEST_BYTES))
    except problems.ItemError:
        return str(slot)


def _parts(flow: Definition, stage: Stage, parents: int) -> int:
    """The most parts of one item: 1, unless it is a pack."""
    if stage.pack is None:
        return 1
    most = stage.pack.size if isinstance(stage.pack, BySize) else stage.pack.most
    if isinstance(stage.pack, OfStage):
        most = min(most, width(flow, stage))
    return max(1, min(most, parents))


def _size(
    order: Order,
    stage: Stage,
    work: Request,
    usual: UsualLength,
    found: Mapping[int, Size],
    parts: int,
    lineage: Lineage,
) -> Size:
    model, scope = order.models.by_stage[stage.number], rendering.of_sample(order.flow, stage, lineage)
    facts = _facts(work, model, usual, partly(work.body, scope))
    more = sum(_more(order.flow, stage, slot, scope, found, parts) for slot in slots(dict(work.body)))
    return Size(facts.est_tokens - facts.answer_tokens + more, facts.answer_tokens or usual(model))


def _more(flow: Definition, stage: Stage, slot: Slot, scope: Fields, found: Mapping[int, Size], parts: int) -> float:
    """Tokens of a placeholder that the body with what is known does not have: of further parts, or of answers."""
    inner, times, names = in_part(slot.path), 1, stage.single.names
    if inner is not None:
        names = flow.below(stage.parent).names
        times = 1 if isinstance(slot.path.keys[0], int) else parts
    if _is_known(slot, scope):
        return (times - 1) * len(_piece(slot, scope).encode()) / USUAL_BYTES_PER_TOKEN
    root = (inner or slot.path).root
    answer = 0.0 if root == "item" else found[names.get(root, stage.parent)].answer
    return times * (answer if slot.most is None else min(answer, slot.most / USUAL_BYTES_PER_TOKEN))


def _facts(work: Request, model: Model, usual: UsualLength, body: dict[str, Any]) -> ItemFacts:
    try:
        return models.examined(work.endpoint, usual, model, body | {"model": model.name})
    except (ItemError, BadInput):
        return models.NO_FACTS._replace(est_tokens=len(orjson.dumps(body)) // USUAL_BYTES_PER_TOKEN)
