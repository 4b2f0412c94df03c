"""`…/events`: the events of `queues.queue` subscriptions, for callers without a public URL. Cloudflare has no such routes."""

import asyncio
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app import clock
from app.api import body, parameter_limits
from app.api.deps import Caller, Parts, PartsDep
from app.api.envelope import success
from app.errors import BadInput
from app.tenants.service import Tenant
from app.webhooks import pull_queue
from app.webhooks.pull_queue import PulledEvent

router = APIRouter(prefix="/events")

MOST_WAIT_SECONDS = 30.0
_POLL_SECONDS = 0.25


class EventQuery(BaseModel):
    """The query. `after`: the id of the last event of the page before; `wait`: seconds to wait for a first one."""

    model_config = ConfigDict(extra="ignore")

    after: str = Field("", json_schema_extra={"pattern": f"^$|{parameter_limits.NUMBER}"})
    queue_id: parameter_limits.Text | None = None
    limit: int = Field(100, json_schema_extra=parameter_limits.declared(1, pull_queue.MOST))
    wait: float = Field(0, json_schema_extra=parameter_limits.declared(0, MOST_WAIT_SECONDS))


class Acknowledged(BaseModel):
    """The body of an acknowledgement: `id`s of events."""

    model_config = ConfigDict(extra="forbid")

    ids: list[str]


@router.get("")
async def listing(tenant: Caller, parts: PartsDep, query: Annotated[EventQuery, Query()]) -> Response:
    """The events that are not acknowledged yet, oldest first."""
    if not 0 <= query.wait <= MOST_WAIT_SECONDS:
        raise BadInput(f"wait: must be 0 to {MOST_WAIT_SECONDS:g} seconds")
    after = _number(query.after, "after") if query.after else 0
    until = clock.monotonic() + query.wait
    events = await _waiting(parts, tenant, query, after)
    while not events and clock.monotonic() < until:
        await asyncio.sleep(_POLL_SECONDS)
        events = await _waiting(parts, tenant, query, after)
    following = str(events[-1].delivery_id) if len(events) == query.limit else None
    return success([_view(each) for each in events], result_info={"count": len(events), "after": following})


@router.post("/ack")
async def acknowledge(request: Request, tenant: Caller, parts: PartsDep) -> Response:
    """Remove events from their queue. Unknown ids have no effect."""
    acknowledged = await body.read_model(request, Acknowledged)
    ids = [_number(text, f"ids[{position}]") for position, text in enumerate(acknowledged.ids)]
    async with parts.database.durable() as conn:
        return success({"acknowledged": await pull_queue.acknowledge(conn, tenant.tenant_id, ids)})


async def _waiting(parts: Parts, tenant: Tenant, query: EventQuery, after: int) -> list[PulledEvent]:
    async with parts.database.relaxed() as conn:
        return await pull_queue.pull(conn, tenant.tenant_id, queue_id=query.queue_id, after=after, limit=query.limit)


def _number(text: str, where: str) -> int:
    number = parameter_limits.number(text)
    if number is None:
        raise BadInput(f"{where}: must be the id of an event in the listing, got {text[:40]}")
    return number


def _view(pulled: PulledEvent) -> dict[str, Any]:
    return {
        "id": str(pulled.delivery_id),
        "subscription_id": pulled.endpoint_id.hex,
        "queue_id": pulled.queue_id,
        "webhook_id": pulled.event.webhook_id,
        "body": orjson.loads(pulled.body),
    }
