"""What was sent to a subscription and how it went; send it again, replay a time, try it, change its key. Slackwater's own."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from app.api import parameter_limits
from app.api.deps import Caller, Parts, PartsDep
from app.api.envelope import success
from app.api.workers_ai import subscriptions
from app.errors import NotFound
from app.events import EventKind
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
    """The body of a replay. `until`: now if not given; `events`: those that the subscription is for."""

    model_config = ConfigDict(extra="forbid")

    since: datetime
    until: datetime | None = None
    events: list[str] | None = None
    only_failed: StrictBool = True


class KeyRotation(BaseModel):
    """The body of a rotation. For `overlap_hours` the old key signs too; without `secret` a new one is made."""

    model_config = ConfigDict(extra="forbid")

    secret: str | None = None
    overlap_hours: float = Field(24, allow_inf_nan=False)


@router.get("/deliveries")
async def listing(
    subscription_id: str, tenant: Caller, parts: PartsDep, asked: Annotated[DeliveryQuery, Query()]
) -> Response:
    """The newest deliveries, each with its latest attempt."""
    endpoint_id = subscriptions.parse_id(subscription_id)
    async with parts.database.relaxed() as conn:
        found = await deliveries.listing(
            conn,
            tenant.tenant_id,
            endpoint_id,
            state=asked.state,
            kind=asked.event,
            before=asked.before,
            limit=asked.limit,
        )
    following = found[-1].delivery_id if len(found) == asked.limit else None
    return success([_view(each) for each in found], result_info={"count": len(found), "before": following})


@router.get("/deliveries/{delivery_id}")
async def show(subscription_id: str, delivery_id: str, tenant: Caller, parts: PartsDep) -> Response:
    """One delivery with every attempt, and the beginning of what the receiver answered."""
    names = subscriptions.parse_id(subscription_id), _number(delivery_id)
    async with parts.database.relaxed() as conn:
        found, attempts = await deliveries.show(conn, tenant.tenant_id, *names)
    return success({**_view(found), "tries": [_attempt(each) for each in attempts]})


@router.post("/deliveries/{delivery_id}/redeliver")
async def redeliver(subscription_id: str, delivery_id: str, tenant: Caller, parts: PartsDep) -> Response:
    """Send it now, whatever became of it."""
    names = subscriptions.parse_id(subscription_id), _number(delivery_id)
    async with parts.database.durable() as conn:
        await deliveries.redeliver(conn, tenant.tenant_id, *names)
        found, _ = await deliveries.show(conn, tenant.tenant_id, *names)
    return success(_view(found))


@router.post("/replay")
async def replay(subscription_id: str, request: Request, tenant: Caller, parts: PartsDep) -> Response:
    """Send what happened in a time again; without `only_failed: false` only what was not accepted."""
    endpoint_id, asked = subscriptions.parse_id(subscription_id), await subscriptions.read(request, Replay)
    async with parts.database.durable() as conn:
        count = await deliveries.replay(
            conn,
            tenant.tenant_id,
            endpoint_id,
            since=asked.since,
            until=asked.until,
            kinds=asked.events,
            only_failed=asked.only_failed,
        )
    return success({"replayed": count, "complete": count < deliveries.MOST_REPLAYED})


@router.post("/pause")
async def pause(subscription_id: str, tenant: Caller, parts: PartsDep) -> Response:
    """Send nothing for now; what happens waits. Setting `enabled` to true goes on."""
    return await _switch("pause", subscription_id, tenant, parts)


@router.post("/disable")
async def disable(subscription_id: str, tenant: Caller, parts: PartsDep) -> Response:
    """Send nothing more, whether it is paused or not; what happens meanwhile can be replayed later."""
    return await _switch("disable", subscription_id, tenant, parts)


async def _switch(verb: endpoints.Switch, subscription_id: str, tenant: Tenant, parts: Parts) -> Response:
    endpoint_id = subscriptions.parse_id(subscription_id)
    async with parts.database.transaction() as conn:
        endpoint = await endpoints.switch(conn, tenant.tenant_id, tenant.account_id, endpoint_id, verb)
    return success(subscriptions.view(endpoint))


@router.post("/test")
async def test(subscription_id: str, tenant: Caller, parts: PartsDep) -> Response:
    """Send an event of the type `test`; the answer names its delivery."""
    endpoint_id = subscriptions.parse_id(subscription_id)
    async with parts.database.durable() as conn:
        delivery_id = await deliveries.send_test(conn, tenant.tenant_id, tenant.account_id, endpoint_id)
        found, _ = await deliveries.show(conn, tenant.tenant_id, endpoint_id, delivery_id)
    return success(_view(found))


@router.post("/rotate_secret")
async def rotate_secret(subscription_id: str, request: Request, tenant: Caller, parts: PartsDep) -> Response:
    """Change the signing key. The answer alone holds the new one."""
    endpoint_id, asked = subscriptions.parse_id(subscription_id), await subscriptions.read(request, KeyRotation)
    async with parts.database.durable() as conn:
        endpoint, keys = await endpoints.rotate_secret(
            conn,
            key=parts.secret_key,
            tenant_id=tenant.tenant_id,
            endpoint_id=endpoint_id,
            secret=asked.secret,
            overlap_seconds=asked.overlap_hours * 3600,
        )
    return success(subscriptions.view(endpoint, keys))


def _number(text: str) -> int:
    number = parameter_limits.number(text)
    if number is None:
        raise NotFound("Delivery not found", code=404)
    return number


def _view(delivery: Delivery) -> dict[str, Any]:
    due = delivery.next_attempt_at if delivery.state == "pending" else None
    return {
        "id": str(delivery.delivery_id),
        "webhook_id": delivery.webhook_id,
        "event": delivery.kind,
        "request_id": delivery.request_id,
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
