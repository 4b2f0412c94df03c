"""The estimate of a batch of an uploaded file: tokens, cost, and its end if it were created now. It promises nothing."""

from dataclasses import asdict, dataclass
from typing import Any

from app import clock
from app.db.pool import Database
from app.engines.catalogue import Catalogue, Price
from app.engines.outcome import Usage
from app.engines.pricing import cost
from app.errors import BadInput
from app.files import ids
from app.files.service import File
from app.queue import reads
from app.queue.reads import Prospect
from app.tenants.service import Tenant


@dataclass(frozen=True, slots=True)
class ModelForecast:
    """The forecast for one model. `eta`: Unix seconds; `engines`: the number of ready ones."""

    model: str
    requests: int
    input_tokens: int
    max_output_tokens: int
    max_cost: float | None
    currency: str | None
    eta: int | None
    engines: int


async def of(database: Database, catalogue: Catalogue, tenant: Tenant, file: File) -> dict[str, Any]:
    """The estimate by model and in total. Output tokens and costs are upper limits.

    Raises BadInput for the output of a batch.
    """
    if file.demand is None:
        raise BadInput("Only an uploaded batch file has an estimate", param="file_id")
    parts = [await _part(database, catalogue, tenant, name, demand) for name, demand in file.demand.items()]
    etas = [part.eta for part in parts]
    known = [eta for eta in etas if eta is not None]
    requests = sum(part.requests for part in parts)
    return {
        "object": "file.estimate",
        "file_id": ids.format_id(file.file_id),
        "requests": requests,
        "unfit_lines": file.lines - requests,
        "input_tokens": sum(part.input_tokens for part in parts),
        "max_output_tokens": sum(part.max_output_tokens for part in parts),
        "eta": max(known) if parts and len(known) == len(parts) else None,
        "models": [asdict(part) for part in parts],
    }


async def _part(
    database: Database, catalogue: Catalogue, tenant: Tenant, name: str, demand: dict[str, int]
) -> ModelForecast:
    model = catalogue.resolve(name)
    price = model.price if model else None
    prospect = await reads.prospect(database, tenant.tenant_id, model.served) if model else Prospect()
    seconds = prospect.seconds(demand["prompt_tokens"] + demand["answer_tokens"])
    most = demand.get("most_tokens", demand["answer_tokens"])  # older files do not have it; for them it is equal
    return ModelForecast(
        name,
        demand["requests"],
        demand["prompt_tokens"],
        most,
        _cost(price, demand["prompt_tokens"], most),
        price.currency if price else None,
        None if seconds is None else int(clock.now().timestamp() + seconds),
        prospect.engines,
    )


def _cost(price: Price | None, prompt_tokens: int, answer_tokens: int) -> float | None:
    if price is None:
        return None
    return cost(price, Usage(prompt_tokens=prompt_tokens, completion_tokens=answer_tokens))
