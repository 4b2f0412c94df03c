"""The deliveries of a subscription: list, show, send again, replay, test; its state and key. Cloudflare has no such routes."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from app.api import body, parameter_limits
from app.api.deps import Caller, Parts, PartsDep
from app.api.envelope import success
from app.api.workers_ai import subscriptions
from app.errors import NotFound
from app.events import EventKind
from app.queue import wakes
from app.states import DELIVERY
from app.tenants.service import Tenant
from app.webhooks import deliveries, endpoints
from app.webhooks.deliveries import Attempt, Delivery
from app.webhooks.formats import timestamp

router = APIRouter(prefix="/event_subscriptions/subscriptions/{subscription_id}")


class DeliveryQuery(BaseModel):
    """The query of a listing; `before`: the id of the last delivery of the page before. Unknown parameters are ignored."""

    model_config = ConfigDict(extra="ignore")

    state: str | None = Field(None, json_schema_extra={"enum": [*DELIVERY.stored(), None]})
    event: str | None = Field(None, json_schema_extra={"enum": [*EventKind, None]})
    before: int | None = Field(None, ge=1, lt=2**63)
    limit: int = Field(20, json_schema_extra=parameter_limits.declared(1, deliveries.MOST_LISTED))


class Replay(BaseModel):
    """The body of a replay. Defaults: `until` is now, `events` those of the subscription."""

    model_config = ConfigDict(extra="forbid")

    since: datetime
    until: datetime | None = None
    events: list[str] | None = None
    only_failed: StrictBool = True


class KeyRotation(BaseModel):
    """The body of a rotation. For `overlap_hours` the old key signs too. Without `secret`, one is generated."""

    model_config = ConfigDict(extra="forbid")

    secret: str | None = None
    overlap_hours: float = Field(24, allow_inf_nan=False, strict=True)


@router.get("/deliveries")
async def listing(
    subscription_id: str, tenant: Caller, parts: PartsDep, query: Annotated[DeliveryQuery, Query()]
) -> Response:
    """The newest deliveries, each with its latest attempt."""
    endpoint_id = subscriptions.parse_id(subscription_id)
    async with parts.database.relaxed() as conn:
        found = await deliveries.listing(
            conn,
            tenant.tenant_id,
            endpoint_id,
            state=query.state,
            kind=query.event,
            before=query.before,
            limit=query.limit,
        )
    following = found[-1].delivery_id if len(found) == query.limit else None
    return success([_view(each) for each in found], result_info={"count": len(found), "before": following})


@router.get("/deliveries/{delivery_id}")
async def show(subscription_id: str, delivery_id: str, tenant: Caller, parts: PartsDep) -> Response:
    """One delivery with every attempt and the beginning of the receiver's answers."""
    ids = subscriptions.parse_id(subscription_id), _delivery_id(delivery_id)
    async with parts.database.relaxed() as conn:
        found, attempts = await deliveries.show(conn, tenant.tenant_id, *ids)
    return success({**_view(found), "tries": [_attempt(each) for each in attempts]})


@router.post("/deliveries/{delivery_id}/redeliver")
async def redeliver(subscription_id: str, delivery_id: str, tenant: Caller, parts: PartsDep) -> Response:
    """Send a delivery now, in any state."""
    ids = subscriptions.parse_id(subscription_id), _delivery_id(delivery_id)
    async with parts.database.durable() as conn:
        await deliveries.redeliver(conn, tenant.tenant_id, *ids)
        found, _ = await deliveries.show(conn, tenant.tenant_id, *ids)
    wakes.notify({})
    return success(_view(found))


@router.post("/replay")
async def replay(subscription_id: str, request: Request, tenant: Caller, parts: PartsDep) -> Response:
    """Send the events of a period again; with `only_failed`, the default, only those that were not accepted."""
    endpoint_id, content = subscriptions.parse_id(subscription_id), await body.read_model(request, Replay)
    async with parts.database.durable() as conn:
        count = await deliveries.replay(
            conn,
            tenant.tenant_id,
            endpoint_id,
            since=content.since,
            until=content.until,
            kinds=content.events,
            only_failed=content.only_failed,
        )
    wakes.notify({})
    return success({"replayed": count, "complete": count < deliveries.MOST_REPLAYED})


@router.post("/pause")
async def pause(subscription_id: str, tenant: Caller, parts: PartsDep) -> Response:
    """Stop sending for now; events wait. Setting `enabled` to true resumes."""
    return await _switch("pause", subscription_id, tenant, parts)


@router.post("/disable")
async def disable(subscription_id: str, tenant: Caller, parts: PartsDep) -> Response:
    """Stop sending, also where it is paused. Events of that time can be replayed later."""
    return await _switch("disable", subscription_id, tenant, parts)


async def _switch(verb: endpoints.Switch, subscription_id: str, tenant: Tenant, parts: Parts) -> Response:
    endpoint_id = subscriptions.parse_id(subscription_id)
    async with parts.database.transaction() as conn:
        endpoint = await endpoints.switch(conn, tenant.tenant_id, tenant.account_id, endpoint_id, verb)
    return success(subscriptions.view(endpoint))


@router.post("/test")
async def test(subscription_id: str, tenant: Caller, parts: PartsDep) -> Response:
    """Send an event of the type `test`; the answer shows its delivery."""
    endpoint_id = subscriptions.parse_id(subscription_id)
    async with parts.database.durable() as conn:
        delivery_id = await deliveries.send_test(conn, tenant.tenant_id, tenant.account_id, endpoint_id)
        found, _ = await deliveries.show(conn, tenant.tenant_id, endpoint_id, delivery_id)
    wakes.notify({})
    return success(_view(found))


@router.post("/rotate_secret")
async def rotate_secret(subscription_id: str, request: Request, tenant: Caller, parts: PartsDep) -> Response:
    """Change the signing key. Only this answer contains the new one."""
    endpoint_id, content = subscriptions.parse_id(subscription_id), await body.read_model(request, KeyRotation)
    async with parts.database.durable() as conn:
        endpoint, keys = await endpoints.rotate_secret(
            conn,
            key=parts.secret_key,
            tenant_id=tenant.tenant_id,
            endpoint_id=endpoint_id,
            secret=content.secret,
            overlap_seconds=content.overlap_hours * 3600,
        )
    return success(subscriptions.view(endpoint, keys))


def _delivery_id(text: str) -> int:
    number = parameter_limits.number(text)
    if number is None:
        raise NotFound("Delivery not found")
    return number


def _view(delivery: Delivery) -> dict[str, Any]:
    due = delivery.next_attempt_at if delivery.state == "pending" else None
    return {
        "id": str(delivery.delivery_id),
        "webhook_id": delivery.webhook_id,
        "event": delivery.kind,
        "request_id": delivery.request_id,
        "trace_id": delivery.trace_id,
        "occurred_at": timestamp(delivery.occurred_at),
        "state": delivery.state,
        "reason": delivery.reason,
        "attempts": delivery.attempts,
        "next_attempt_at": timestamp(due) if due else None,
        "last_attempt": None if delivery.last is None else _attempt(delivery.last),
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    view: dict[str, Any] = {
        "number": attempt.n,
        "started_at": timestamp(attempt.started_at),
        "duration_ms": attempt.duration_ms,
        "http_status": attempt.http_status,
        "error": attempt.error,
        "address": attempt.address,
    }
    return view if attempt.body is None else view | {"response_body": attempt.body.decode(errors="replace")}
