"""`GET …/usage`: what the account's requests used and cost, by labels, model, key or time. Cloudflare has no such route."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from app import clock
from app.api.deps import Caller, PartsDep
from app.api.envelope import success
from app.errors import BadInput
from app.metering import reports
from app.metering.reports import UsageRow
from app.quantities import seconds_of

router = APIRouter(prefix="/ai")

_BY = tuple(name for name in reports.DIMENSIONS if name != "account")
_MOST_DAYS = 400


class UsageQuery(BaseModel):
    """The query. `by`: what to group by, separated by commas. `since`: how far back, like 90m, 24h or 7d."""

    model_config = ConfigDict(extra="ignore")

    by: str = Field(",".join(reports.USUAL), json_schema_extra={"pattern": f"^({'|'.join(_BY)})(,({'|'.join(_BY)}))*$"})
    since: str = Field("24h", json_schema_extra={"pattern": "^[1-9][0-9]{0,2}[smh]$|^[1-9][0-9]?d$"})


@router.get("/usage")
async def usage(tenant: Caller, parts: PartsDep, query: Annotated[UsageQuery, Query()]) -> Response:
    """What the account's requests used and cost, by labels, model, key or time; the most expensive group first."""
    by = tuple(query.by.split(","))
    if unknown := [name for name in by if name not in _BY]:
        raise BadInput(
            f"by: must be some of {', '.join(_BY)}, separated by commas, got {unknown[0][:40]!r}", param="by"
        )
    seconds = seconds_of(query.since)
    if not seconds or seconds > _MOST_DAYS * 86_400:
        raise BadInput("since: must be a length of time like 90m, 24h or 7d, at most 400d", param="since")
    until = clock.now()
    since = (until - timedelta(seconds=seconds)).replace(minute=0, second=0, microsecond=0)
    async with parts.database.relaxed() as conn:
        rows = await reports.usage(conn, by, since, until, tenant.tenant_id)
    return success({"since": clock.iso(since), "until": clock.iso(until), "usage": [document(by, row) for row in rows]})


def document(by: tuple[str, ...], row: UsageRow) -> dict[str, Any]:
    """A row as JSON: its group, requests, tokens, and cost in the currency, or null without a price."""
    counts = {name: getattr(row, name) for name in ("requests", "ok", "repeats", "retried", "retried_ok", "yields")}
    tokens = {"prompt_tokens": row.prompt, "cached_tokens": row.cached, "completion_tokens": row.output}
    cost = None if row.cost is None else float(row.cost)
    return {**dict(zip(by, row.group, strict=True)), **counts, **tokens, "cost": cost, "currency": row.currency}
