"""What a pipeline would do, before anything is stored: requests of a sample, and a forecast of items, tokens, cost and time.

Only stages behind the input have whole requests. Of the others, what the answers will bring stays a placeholder. A forecast has
upper limits: a condition lets every item pass, a fan-out makes its most, an escalation its share.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import orjson

from app.batches.validation.text_generation import ItemError, ItemFacts
from app.db.pool import Database
from app.engines.catalogue import Model
from app.engines.outcome import Usage
from app.engines.pricing import cost
from app.errors import BadInput, PolicyDenied, SensitiveFound
from app.flows import rendering
from app.flows.counting import allowed, numbers
from app.flows.given import slots
from app.flows.items import Asked, Lineage, Parked, Refused
from app.flows.stages import INPUT, Again, BySize, Definition, Request, Stage
from app.flows.templates import Template
from app.pipelines import models
from app.pipelines.drafting import Order
from app.queue import reads
from app.queue.answer_lengths import UsualLength

SAMPLE = 3
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class StageForecast:
    """The most that a stage can have. `seconds`: for its model alone; None: its pace is not known."""

    items: int
    prompt_tokens: int
    answer_tokens: int
    cost: float | None
    currency: str | None
    seconds: float | None


async def of(
    database: Database, order: Order, usual: UsualLength, lines: int, sample: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The check of a definition that could run. `lines`: of its input; `sample`: some of them."""
    shown = await asyncio.to_thread(_requests, order, usual, sample)
    found, waits = {}, dict[str, float | None]()
    sizes = _sizes(order, usual, sample)
    for stage in order.flow.stages:
        found[stage.number] = await _forecast(database, order, stage, lines, sizes)
        if (model := order.models.of(stage)) is not None:
            before, own = waits.get(model.served, 0.0), found[stage.number].seconds
            waits[model.served] = None if before is None or own is None else before + own
    times = [each for each in waits.values() if each is not None]
    costs = [(each.cost, each.currency) for each in found.values() if each.cost is not None]
    return {
        "object": "pipeline.check",
        "inputs": lines,
        "stages": [
            {"id": stage.name, "model": stage.work.model if isinstance(stage.work, Request | Again) else None}
            | {"after": _name(order.flow, stage.parent), "sample": shown[stage.number]}
            | {"most": _view(found[stage.number])}
            for stage in order.flow.stages
        ],
        "most": {
            "items": sum(each.items for each in found.values()),
            "prompt_tokens": sum(each.prompt_tokens for each in found.values()),
            "answer_tokens": sum(each.answer_tokens for each in found.values()),
            "cost": sum(amount for amount, _ in costs) if costs else None,
            "currency": costs[0][1] if costs else None,
            "seconds": max(times) if times and len(times) == len(waits) else None,
        },
    }


def _view(of: StageForecast) -> dict[str, Any]:
    return {name: getattr(of, name) for name in StageForecast.__slots__}


def _name(flow: Definition, number: int) -> str:
    return "input" if number == INPUT else flow.stage(number).name


def _requests(order: Order, usual: UsualLength, sample: Sequence[Mapping[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """By stage, what the lines of the sample become there."""
    flow, found = order.flow, dict[int, list[dict[str, Any]]]()
    for stage in flow.stages:
        shown = []
        whole = stage.parent == INPUT and not flow.input.answers and stage.pack is None
        for line in sample if whole or stage.single.line else sample[:1]:
            made = rendering.children(flow, stage, Lineage(line)) if whole else None
            entry: dict[str, Any] = {"custom_id": line.get("custom_id"), "whole": whole}
            if made is None:
                shown.append(entry | {"body": _partly(stage, line)})
            else:
                shown += [entry | _made(order, stage, each, usual) for each in made] or [entry | {"dropped": True}]
        found[stage.number] = shown
    return found


def _made(order: Order, stage: Stage, child: Any, usual: UsualLength) -> dict[str, Any]:
    """A request of the sample, as the policy leaves it, or what is wrong with it."""
    match child:
        case Refused(error):
            return {"error": {"reason": error.reason.value, "message": error.message}}
        case Parked(body):
            return {"body": dict(body)}
        case Asked(endpoint, name, body):
            model = order.models.of(stage)
            assert model is not None
            item = dict(body) | {"model": name}
            try:
                admitted = order.admission.admit(
                    model, item, endpoint, lambda m, i: models.examined(endpoint, usual, m, i)
                )
            except (ItemError, PolicyDenied, SensitiveFound) as error:
                return {"error": {"reason": "not_valid", "message": str(error)}}
            return {"body": admitted.item}
    return {"passed": True}


def _partly(stage: Stage, line: Mapping[str, Any]) -> Any:
    """The body of a stage with what the input's line gives. What comes from answers stays a placeholder."""
    if not hasattr(stage.work, "body"):
        return None
    single = stage.single.line

    def value(of: Any) -> Any:
        if isinstance(of, Template):
            return "".join(_piece(each, line if single else None) for each in of.pieces)
        if isinstance(of, dict):
            return {name: value(each) for name, each in of.items()}
        return [value(each) for each in of] if isinstance(of, list) else of

    return value(dict(stage.work.body))


def _piece(piece: Any, line: Mapping[str, Any] | None) -> str:
    if isinstance(piece, str):
        return piece
    found: Any = line if piece.path.root == "item" else None
    for key in piece.path.keys if found is not None else ():
        try:
            found = found[key]
        except (KeyError, IndexError, TypeError):
            return str(piece)
    if found is None:
        return str(piece)
    text = found if isinstance(found, str) else orjson.dumps(found).decode()
    return text if piece.most is None else text[: piece.most]


@dataclass(frozen=True, slots=True)
class _Size:
    prompt: float
    answer: float


def _sizes(order: Order, usual: UsualLength, sample: Sequence[Mapping[str, Any]]) -> dict[int, _Size]:
    """By stage, the tokens of one request: of the sample, and for each placeholder of an answer one answer of the parent."""
    found: dict[int, _Size] = {INPUT: _Size(0.0, 0.0)}
    for stage in order.flow.stages:
        model, above = order.models.of(stage), found[stage.parent]
        if model is None or not isinstance(stage.work, Request | Again):
            found[stage.number] = above
        elif isinstance(stage.work, Again):
            first = found[stage.work.of]
            found[stage.number] = _Size(first.prompt + (first.answer if stage.work.with_answer else 0), first.answer)
        else:
            found[stage.number] = _size(stage, stage.work, model, usual, sample, above.answer)
    return found


def _size(
    stage: Stage, work: Request, model: Model, usual: UsualLength, sample: Sequence[Mapping[str, Any]], answer: float
) -> _Size:
    bodies = [_partly(stage, line) for line in sample] or [_partly(stage, {})]
    facts = [_facts(work, model, usual, body) for body in bodies]
    prompt = sum(each.est_tokens - each.answer_tokens for each in facts) / len(facts)
    most = facts[0].answer_tokens or usual(model)
    packed = 1 if stage.pack is None else stage.pack.size if isinstance(stage.pack, BySize) else stage.pack.most
    answers = sum(1 for slot in slots(dict(work.body)) if slot.path.root not in ("item", "each"))
    return _Size(prompt + answers * answer * packed, most)


def _facts(work: Request, model: Model, usual: UsualLength, body: Any) -> ItemFacts:
    try:
        return models.examined(work.endpoint, usual, model, body | {"model": model.name})
    except (ItemError, BadInput):
        size = len(orjson.dumps(body)) // _BYTES_PER_TOKEN
        return models.NO_FACTS._replace(est_tokens=size)


async def _forecast(
    database: Database, order: Order, stage: Stage, lines: int, sizes: Mapping[int, _Size]
) -> StageForecast:
    count = numbers(order.flow, lines)[stage.number]
    model, size = order.models.of(stage), sizes[stage.number]
    if model is None:
        return StageForecast(count, 0, 0, None, None, 0.0)
    requests = allowed(stage.share, count) if isinstance(stage.work, Again) else count
    prompt, answer = ceil(requests * size.prompt), ceil(requests * size.answer)
    price = model.price
    amount = cost(price, Usage(prompt_tokens=prompt, completion_tokens=answer)) if price else None
    prospect = await reads.prospect(database, order.tenant.tenant_id, model.served)
    return StageForecast(
        requests, prompt, answer, amount, price.currency if price else None, prospect.seconds(prompt + answer)
    )
