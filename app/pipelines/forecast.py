"""What a pipeline would do, before anything is stored: requests of a sample, and a forecast of items, tokens, cost and time.

Only stages behind the input have whole requests. Of the others, what the answers will bring stays a placeholder, and a pack has
one part. The items of a forecast are upper limits: a condition lets every item pass, a fan-out makes its most, an escalation its
share. Tokens, cost and time are an estimate, as if every request were as large as the largest of the sample.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from app.batches.validation.text_generation import ItemError
from app.db.pool import Database
from app.engines.outcome import Usage
from app.engines.pricing import cost
from app.errors import PolicyDenied, SensitiveFound
from app.flows import rendering
from app.flows.counting import allowed, numbers
from app.flows.items import Asked, Lineage, Parked, Refused
from app.flows.stages import INPUT, Again, Definition, External, Request, Stage
from app.pipelines import models, sizes
from app.pipelines.drafting import Order
from app.pipelines.sizes import Size
from app.queue import reads
from app.queue.answer_lengths import UsualLength

SAMPLE = 3


@dataclass(frozen=True, slots=True)
class StageForecast:
    """The most items that a stage can have, and what they need if each is as large as the largest of the sample. `seconds`: for
    its model alone; None: its pace is not known.
    """

    items: int
    prompt_tokens: int
    answer_tokens: int
    cost: float | None
    currency: str | None
    seconds: float | None


async def of(
    database: Database, order: Order, usual: UsualLength, lines: int, sample: Sequence[Lineage]
) -> dict[str, Any]:
    """The check of a definition that could run. `lines`: of its input; `sample`: some of them, of which answers are not shown."""
    shown = await asyncio.to_thread(_requests, order, usual, [] if order.flow.input.answers else sample)
    found, waits = {}, dict[str, float | None]()
    size_of = await asyncio.to_thread(sizes.of, order, usual, lines, sample)
    for stage in order.flow.stages:
        found[stage.number] = await _forecast(database, order, stage, lines, size_of[stage.number])
        if (model := order.models.of(stage)) is not None:
            before, own = waits.get(model.served, 0.0), found[stage.number].seconds
            waits[model.served] = None if before is None or own is None else before + own
    times = [each for each in waits.values() if each is not None]
    costs = [each.cost for each in found.values() if each.cost is not None]
    currencies = {each.currency for each in found.values() if each.cost is not None}
    currency = currencies.pop() if len(currencies) == 1 else None  # no sum of several
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
            "cost": sum(costs) if currency else None,
            "currency": currency,
            "seconds": max(times) if times and len(times) == len(waits) else None,
        },
    }


def _view(of: StageForecast) -> dict[str, Any]:
    return {name: getattr(of, name) for name in StageForecast.__slots__}


def _name(flow: Definition, number: int) -> str:
    return "input" if number == INPUT else flow.stage(number).name


def _requests(order: Order, usual: UsualLength, sample: Sequence[Lineage]) -> dict[int, list[dict[str, Any]]]:
    """By stage, what the lines of the sample become there."""
    flow, found = order.flow, dict[int, list[dict[str, Any]]]()
    for stage in flow.stages:
        shown = []
        whole = stage.parent == INPUT and stage.pack is None
        for lineage in sample if whole or stage.single.line else sample[:1]:
            name = lineage.line.get("custom_id") if lineage.line else None
            entry: dict[str, Any] = {"custom_id": name, "whole": whole}
            if whole:
                made = rendering.children(flow, stage, lineage)
                shown += [entry | _made(order, stage, each, usual) for each in made] or [entry | {"dropped": True}]
            else:
                shown.append(entry | {"body": _partly(flow, stage, lineage)})
        found[stage.number] = shown
    return found


def _partly(flow: Definition, stage: Stage, lineage: Lineage) -> dict[str, Any] | None:
    if not isinstance(stage.work, Request | External):
        return None
    return sizes.partly(stage.work.body, rendering.of_sample(flow, stage, lineage))


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


async def _forecast(database: Database, order: Order, stage: Stage, lines: int, size: Size) -> StageForecast:
    count = numbers(order.flow, lines)[stage.number]
    model = order.models.of(stage)
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
