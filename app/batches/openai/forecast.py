"""The estimate of a batch of an uploaded file: tokens, cost, and its end if it were created now. It promises nothing."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from app import clock
from app.batches import why_text
from app.budgets import service as budgets
from app.budgets import terms as budget_terms
from app.budgets.rules import Budget, Queued, Scope, Unit
from app.db.pool import Database
from app.engines.catalogue import Catalogue, Price
from app.engines.outcome import Usage
from app.engines.pricing import cost
from app.errors import BadInput
from app.files import ids
from app.files.service import File
from app.metering import money
from app.metering.money import TokenPrice
from app.metering.spend_labels import SpendLabels
from app.queue import reads
from app.queue.reads import Prospect
from app.tenants.service import Tenant


@dataclass(frozen=True, slots=True)
class ModelForecast:
    """The forecast for one model. `input_tokens` is an estimate; what is called `max_` is not exceeded. `eta`: Unix seconds;
    None: `no_eta` says why. `engines`: the number of ready ones.
    """

    model: str
    requests: int
    input_tokens: int
    max_input_tokens: int
    max_output_tokens: int
    max_cost: float | None
    currency: str | None
    eta: int | None
    no_eta: str | None
    engines: int


@dataclass(frozen=True, slots=True)
class BudgetForecast:
    """The budget whose money would end first. `needed`: what the file needs, as `available` in the currency or in tokens.

    `ends_near_request`: requests that the available money is enough for. `refused`: a batch of the file would be refused now, and
    nothing of it would wait. `renewed_at`: Unix seconds; None: never.
    """

    name: str
    available: float
    needed: float
    ends_near_request: int
    refused: bool
    renewed_at: int | None


async def of(
    database: Database, catalogue: Catalogue, tenant: Tenant, labels: SpendLabels, file: File
) -> dict[str, Any]:
    """The estimate of a batch with these labels, by model and in total. What is called `max_` is not exceeded.

    Raises BadInput for the output of a batch.
    """
    if file.demand is None:
        raise BadInput("Only an uploaded batch file has an estimate", param="file_id")
    parts = [await _part(database, catalogue, tenant, name, demand) for name, demand in file.demand.items()]
    etas = [part.eta for part in parts]
    ending = await _budget(database, catalogue, tenant, labels, file.demand)
    known = [eta for eta in etas if eta is not None]
    requests = sum(part.requests for part in parts)
    return {
        "object": "file.estimate",
        "file_id": ids.format_id(file.file_id),
        "requests": requests,
        "unfit_lines": file.lines - requests,
        "input_tokens": sum(part.input_tokens for part in parts),
        "max_input_tokens": sum(part.max_input_tokens for part in parts),
        "max_output_tokens": sum(part.max_output_tokens for part in parts),
        "eta": max(known) if parts and len(known) == len(parts) else None,
        "no_eta": next((part.no_eta for part in parts if part.no_eta), None),
        "models": [asdict(part) for part in parts],
        "budget": asdict(ending) if ending else None,
    }


async def _part(
    database: Database, catalogue: Catalogue, tenant: Tenant, name: str, demand: dict[str, int]
) -> ModelForecast:
    model = catalogue.resolve(name)
    price = model.price if model else None
    prospect = await reads.prospect(database, tenant.tenant_id, model.served) if model else Prospect()
    seconds = prospect.seconds(demand["prompt_tokens"] + demand["answer_tokens"])
    most = demand["most_tokens"]
    return ModelForecast(
        name,
        demand["requests"],
        demand["prompt_tokens"],
        demand["most_prompt_tokens"],
        most,
        _cost(price, demand["most_prompt_tokens"], most),
        price.currency if price else None,
        None if seconds is None else math.ceil(clock.now().timestamp() + seconds),
        None if seconds is not None else why_text.no_eta(prospect.missing, name, still=prospect.still),
        prospect.engines,
    )


async def _budget(
    database: Database, catalogue: Catalogue, tenant: Tenant, labels: SpendLabels, demand: dict[str, dict[str, int]]
) -> BudgetForecast | None:
    """The first budget of the account, the key, or the workflow that refuses a batch or has too little for it. None: all that
    limit queued work have enough.
    """
    async with database.relaxed() as conn:
        found = await budgets.listing(conn, tenant.tenant_id)
    mine = {Scope.ACCOUNT: "", Scope.KEY: tenant.key_id, Scope.WORKFLOW: labels.workflow}
    requests = sum(each["requests"] for each in demand.values())
    endings = []
    for budget in found:
        if budget.queued == Queued.ALERT or mine[budget.scope] != budget.scope_value:
            continue
        needed = sum(_needed(budget, catalogue, name, each) for name, each in demand.items())
        free = max(0, budget.available)
        refused = budget.queued == Queued.REFUSE and budget.at_limit and needed > 0
        if refused or needed > free:
            renewed = int(budget.window_to.timestamp()) if budget.window_to else None
            amounts = budget_terms.amount(budget, free), budget_terms.amount(budget, needed)
            near = 0 if refused else requests * free // needed
            endings.append(BudgetForecast(budget.name, *amounts, near, refused, renewed))
    return min(endings, key=lambda ending: (not ending.refused, ending.ends_near_request), default=None)


def _needed(budget: Budget, catalogue: Catalogue, name: str, demand: dict[str, int]) -> int:
    """What the requests to one model are expected to use, in the unit of the budget."""
    if budget.unit == Unit.TOKENS:
        return demand["prompt_tokens"] + demand["answer_tokens"]
    model = catalogue.resolve(name)
    if model is None or model.price is None or model.price.currency != budget.currency:
        return 0
    price = TokenPrice.of(model.price, f"price of {name}")
    return money.cost(demand["prompt_tokens"], 0, demand["answer_tokens"], price)


def _cost(price: Price | None, prompt_tokens: int, answer_tokens: int) -> float | None:
    if price is None:
        return None
    return cost(price, Usage(prompt_tokens=prompt_tokens, completion_tokens=answer_tokens))
