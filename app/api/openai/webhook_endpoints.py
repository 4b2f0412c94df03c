"""`…/webhook_endpoints`: OpenAI's management of webhooks (client 3.x), for the same rows as Workers AI's subscriptions.

Shapes: openai-python 3.52, `types/webhooks`. Endpoints that are created here get events in OpenAI's format. Those of other
routes are shown, changed and deleted here too. As everywhere, an endpoint gets only tests until it has accepted one.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict

from app import clock, places
from app.api.body import read_model
from app.api.deps import KeyHolder, Parts, PartsDep
from app.api.openai.list_pages import PageQuery, answer, listed
from app.api.permissions import seen_endpoint
from app.errors import BadInput, NotFound, TestUnanswered
from app.queue import wakes
from app.sentences import ended
from app.states import DeliveryState
from app.tenants.service import Tenant
from app.webhooks import deliveries, endpoints, registration, url_check
from app.webhooks.deliveries import Attempt, Delivery
from app.webhooks.egress import FAULTS, failure
from app.webhooks.endpoints import Endpoint, Keys
from app.webhooks.formats import OPENAI_TYPES
from app.webhooks.url_check import CheckedUrl

router = APIRouter()

PREFIX = "we_"
_TEST_SECONDS = 20.0
_POLL_SECONDS = 0.1
_OVERLAP_SECONDS = 24 * 3600.0
_KINDS = {event_type: kind for kind, event_type in OPENAI_TYPES.items()}
_KNOWN = ", ".join(sorted(_KINDS))


class NewEndpoint(BaseModel):
    """The body of a create."""

    model_config = ConfigDict(extra="ignore", strict=True)

    name: str
    url: str
    event_types: list[str]


class EndpointUpdate(BaseModel):
    """The body of an update."""

    model_config = ConfigDict(extra="ignore", strict=True)

    name: str | None = None
    url: str | None = None
    event_types: list[str] | None = None


class SecretRotation(BaseModel):
    """The body of a rotation."""

    model_config = ConfigDict(extra="ignore", strict=True)

    keep_old_secret_active_for_24_hours: bool = False


class EndpointTest(BaseModel):
    """The body of a test."""

    model_config = ConfigDict(extra="ignore", strict=True)

    event_type: str


@router.post("/webhook_endpoints")
async def create(request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Register a webhook. Only this answer contains the signing secret."""
    new = await read_model(request, NewEndpoint)
    kinds, url = _kinds(new.event_types), await _checked_url(parts, tenant, new.url)
    async with parts.database.transaction() as conn:
        await registration.check_room(conn, tenant.tenant_id, parts.settings.webhook_endpoints)
        endpoint, keys = await registration.create(
            conn,
            key=parts.secret_key,
            tenant_id=tenant.tenant_id,
            account_id=tenant.account_id,
            name=new.name,
            url=url,
            kinds=kinds,
            shape="openai",
        )
    wakes.notify({})
    return answer(_view(endpoint, keys))


@router.get("/webhook_endpoints")
async def listing(tenant: KeyHolder, parts: PartsDep, page: Annotated[PageQuery, Query()]) -> Response:
    """A page of webhooks, newest first."""
    after = places.parsed(page.after, _known)
    async with parts.database.relaxed() as conn:
        found, more = await endpoints.newest(conn, tenant.tenant_id, after=after, limit=page.limit)
    return listed([_view(seen_endpoint(tenant, endpoint)) for endpoint in found], more=more)


@router.get("/webhook_endpoints/{endpoint_id}")
async def retrieve(endpoint_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """One webhook, without its secret."""
    async with parts.database.relaxed() as conn:
        endpoint = await endpoints.get(conn, tenant.tenant_id, _parse(endpoint_id))
    return answer(_view(seen_endpoint(tenant, endpoint)))


@router.post("/webhook_endpoints/{endpoint_id}")
async def update(endpoint_id: str, request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Replace the name, the URL or the event types of a webhook."""
    parsed_id, change = _parse(endpoint_id), await read_model(request, EndpointUpdate)
    url = await _checked_url(parts, tenant, change.url) if change.url is not None else None
    kinds = _kinds(change.event_types) if change.event_types is not None else None
    async with parts.database.transaction() as conn:
        endpoint = await endpoints.patch(
            conn, tenant_id=tenant.tenant_id, endpoint_id=parsed_id, name=change.name, url=url, kinds=kinds
        )
    return answer(_view(endpoint))


@router.delete("/webhook_endpoints/{endpoint_id}")
async def delete(endpoint_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Remove a webhook and its waiting deliveries."""
    async with parts.database.durable() as conn:
        endpoint = await endpoints.delete(conn, tenant.tenant_id, _parse(endpoint_id))
    return answer({"id": _id(endpoint), "object": "webhook_endpoint.deleted", "deleted": True})


@router.post("/webhook_endpoints/{endpoint_id}/rotate_secret")
async def rotate_secret(endpoint_id: str, request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Change the signing secret; on request the old one also signs for a day. Only this answer contains the new one."""
    parsed_id, content = _parse(endpoint_id), await read_model(request, SecretRotation)
    overlap = _OVERLAP_SECONDS if content.keep_old_secret_active_for_24_hours else 0.0
    async with parts.database.durable() as conn:
        endpoint, keys = await endpoints.rotate_secret(
            conn,
            key=parts.secret_key,
            tenant_id=tenant.tenant_id,
            endpoint_id=parsed_id,
            secret=None,
            overlap_seconds=overlap,
        )
    return answer(_view(endpoint, keys))


@router.post("/webhook_endpoints/{endpoint_id}/test")
async def test(endpoint_id: str, request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Send a test event of one type, and answer with the receiver's status.

    A result always has a status, as at OpenAI. A missing answer is an error that clients do not retry.
    """
    parsed_id, content = _parse(endpoint_id), await read_model(request, EndpointTest)
    if content.event_type not in _KINDS:
        raise _unknown_type("event_type", content.event_type)
    kind = _KINDS[content.event_type]
    async with parts.database.durable() as conn:
        endpoint = await endpoints.get(conn, tenant.tenant_id, parsed_id)
        if endpoint.url is not None:
            parts.admission.check_webhook(tenant, endpoint.url)
        delivery_id = await deliveries.send_test(conn, tenant.tenant_id, tenant.account_id, parsed_id, kind)
    wakes.notify({})
    attempt = await _outcome(parts, tenant, parsed_id, delivery_id)
    if attempt.error is not None and (attempt.http_status is None or attempt.error in FAULTS):
        why = failure(attempt.http_status, attempt.error, attempt.duration_ms)
        raise TestUnanswered(ended(why[0].upper() + why[1:]))
    return answer(
        {
            "object": "webhook_endpoint.test",
            "webhook_endpoint_id": endpoint_id,
            "event_type": content.event_type,
            "success": True,
            "status_code": attempt.http_status,
        }
    )


@router.get("/webhook_event_types")
async def event_types(tenant: KeyHolder) -> Response:
    """The event types that a webhook can subscribe to."""
    return answer({"object": "list", "data": sorted(_KINDS)})


async def _outcome(parts: Parts, tenant: Tenant, endpoint_id: UUID, delivery_id: int) -> Attempt:
    """The first attempt of a delivery, after it has ended. Raises TestUnanswered."""
    begun = clock.monotonic()
    while True:
        async with parts.database.relaxed() as conn:
            found, _ = await deliveries.show(conn, tenant.tenant_id, endpoint_id, delivery_id)
        if found.last is not None:
            return found.last
        if clock.monotonic() - begun >= _TEST_SECONDS:
            async with parts.database.relaxed() as conn:
                before = await deliveries.listing(conn, tenant.tenant_id, endpoint_id, before=delivery_id, limit=1)
            raise TestUnanswered(_why_none(found, before))
        await asyncio.sleep(_POLL_SECONDS)


def _why_none(test: Delivery, before: Sequence[Delivery]) -> str:
    """Why a test has no attempt that has ended. `before`: the delivery before it, if there is one."""
    if test.state == DeliveryState.SENDING:
        return f"The test was sent, and the receiver has not ended its answer within {_TEST_SECONDS:g} seconds."
    if before and (last := before[0].last) is not None and last.error is not None:
        why = failure(last.http_status, last.error, last.duration_ms)
        return ended(f"The test waits, because the delivery before it failed: {why}")
    return f"The test was not sent within {_TEST_SECONDS:g} seconds; is a notifier running?"


async def _checked_url(parts: Parts, tenant: Tenant, url: str) -> CheckedUrl:
    audit = parts.admission.audit
    checked = await url_check.checked_for_tenant(parts.database, parts.egress, audit, tenant, url, where="url")
    parts.admission.check_webhook(tenant, url)
    return checked


def _kinds(event_types: Sequence[str]) -> list[str]:
    """Our event kinds for OpenAI's event types. Raises BadInput."""
    if not event_types:
        raise BadInput(f"event_types: name at least one of {_KNOWN}", param="event_types")
    for position, event_type in enumerate(event_types):
        if event_type not in _KINDS:
            raise _unknown_type(f"event_types[{position}]", event_type)
    return [_KINDS[event_type] for event_type in event_types]


def _unknown_type(where: str, event_type: str) -> BadInput:
    message = f"{where}: must be one of {_KNOWN}, got {event_type[:60]!r}"
    return BadInput(message, param=where)


def _known(endpoint_id: str) -> UUID | None:
    try:
        return UUID(endpoint_id.removeprefix(PREFIX))
    except ValueError:
        return None


def _parse(endpoint_id: str) -> UUID:
    parsed = _known(endpoint_id)
    if parsed is None:
        raise NotFound(f"No webhook endpoint found with id {endpoint_id[:60]!r}")
    return parsed


def _id(endpoint: Endpoint) -> str:
    return PREFIX + endpoint.endpoint_id.hex


def _view(endpoint: Endpoint, keys: Keys | None = None) -> dict[str, Any]:
    """An endpoint in the form that OpenAI's clients read, with our additional fields."""
    view: dict[str, Any] = {
        "id": _id(endpoint),
        "object": "webhook_endpoint",
        "name": endpoint.name,
        "url": endpoint.url,
        "event_types": [OPENAI_TYPES.get(kind, kind) for kind in endpoint.kinds],
        "signing_secret_hint": None,
        "created_at": int(endpoint.created_at.timestamp()),
        "updated_at": int(endpoint.modified_at.timestamp()),
        "state": endpoint.state,
        "disabled_reason": endpoint.reason,
    }
    return view if keys is None else view | {"signing_secret": keys.secret, "signing_secret_hint": keys.secret[-4:]}
