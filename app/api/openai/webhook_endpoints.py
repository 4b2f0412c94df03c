"""`…/webhook_endpoints`: OpenAI's management of webhooks (client 3.x), over the same rows as Workers AI's subscriptions.

Shapes: openai-python 3.52, `types/webhooks`. An endpoint made here is told in OpenAI's format; those made elsewhere are shown,
changed and deleted here too. As everywhere, nothing but a test is sent to one that has not accepted a test yet.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict

from app import clock
from app.api.deps import KeyHolder, Parts, PartsDep
from app.api.openai.list_pages import PageQuery, answer, listed
from app.api.workers_ai.subscriptions import read
from app.errors import BadInput, NotFound, SlackwaterError
from app.tenants.service import Tenant
from app.webhooks import deliveries, endpoints
from app.webhooks.deliveries import Attempt
from app.webhooks.egress import FAULTS
from app.webhooks.endpoints import Endpoint, Keys
from app.webhooks.formats import OPENAI_TYPES

router = APIRouter()

PREFIX = "we_"
_TEST_SECONDS = 20.0
_LOOK_SECONDS = 0.1
_KEPT_SECONDS = 24 * 3600.0
_KINDS = {told: kind for kind, told in OPENAI_TYPES.items()}
_KNOWN = ", ".join(sorted(_KINDS))


class New(BaseModel):
    """The body of a create."""

    model_config = ConfigDict(extra="ignore")

    name: str
    url: str
    event_types: list[str]


class EndpointUpdate(BaseModel):
    """The body of an update."""

    model_config = ConfigDict(extra="ignore")

    name: str | None = None
    url: str | None = None
    event_types: list[str] | None = None


class SecretRotation(BaseModel):
    """The body of a rotation."""

    model_config = ConfigDict(extra="ignore")

    keep_old_secret_active_for_24_hours: bool = False


class Test(BaseModel):
    """The body of a test."""

    model_config = ConfigDict(extra="ignore")

    event_type: str


class _Untested(SlackwaterError):
    """The test had no answer. Not 408 or 502, which clients try again: each try would send one more test."""

    status, code = 424, 5006


@router.post("/webhook_endpoints")
async def create(request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Register a webhook. The answer alone holds the signing secret."""
    new = await read(request, New)
    kinds, url = _kinds(new.event_types), await _checked_url(parts, tenant, new.url)
    async with parts.database.transaction() as conn:
        await endpoints.check_room(conn, tenant.tenant_id, parts.settings.webhook_endpoints)
        endpoint, keys = await endpoints.create(
            conn,
            key=parts.secret_key,
            tenant_id=tenant.tenant_id,
            account_id=tenant.account_id,
            name=new.name,
            url=url,
            kinds=kinds,
            shape="openai",
        )
    return answer(_view(endpoint, keys))


@router.get("/webhook_endpoints")
async def listing(tenant: KeyHolder, parts: PartsDep, page: Annotated[PageQuery, Query()]) -> Response:
    """The newest webhooks, a page of them."""
    after = _parse(page.after) if page.after else None
    async with parts.database.relaxed() as conn:
        found, more = await endpoints.newest(conn, tenant.tenant_id, after=after, limit=page.limit)
    return listed([_view(endpoint) for endpoint in found], more=more)


@router.get("/webhook_endpoints/{endpoint_id}")
async def retrieve(endpoint_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """One webhook, without its secret."""
    async with parts.database.relaxed() as conn:
        return answer(_view(await endpoints.get(conn, tenant.tenant_id, _parse(endpoint_id))))


@router.post("/webhook_endpoints/{endpoint_id}")
async def update(endpoint_id: str, request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Change its name, URL or event types, which replace those it had."""
    wanted, change = _parse(endpoint_id), await read(request, EndpointUpdate)
    url = await _checked_url(parts, tenant, change.url) if change.url is not None else None
    kinds = _kinds(change.event_types) if change.event_types is not None else None
    async with parts.database.transaction() as conn:
        endpoint = await endpoints.patch(
            conn, tenant_id=tenant.tenant_id, endpoint_id=wanted, name=change.name, url=url, kinds=kinds
        )
    return answer(_view(endpoint))


@router.delete("/webhook_endpoints/{endpoint_id}")
async def delete(endpoint_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Remove a webhook and what was to be sent to it."""
    async with parts.database.durable() as conn:
        endpoint = await endpoints.delete(conn, tenant.tenant_id, _parse(endpoint_id))
    return answer({"id": _id(endpoint), "object": "webhook_endpoint.deleted", "deleted": True})


@router.post("/webhook_endpoints/{endpoint_id}/rotate_secret")
async def rotate_secret(endpoint_id: str, request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Change the signing secret; on demand the old one signs too, for a day. The answer alone holds the new one."""
    wanted, asked = _parse(endpoint_id), await read(request, SecretRotation)
    overlap = _KEPT_SECONDS if asked.keep_old_secret_active_for_24_hours else 0.0
    async with parts.database.durable() as conn:
        endpoint, keys = await endpoints.rotate_secret(
            conn,
            key=parts.secret_key,
            tenant_id=tenant.tenant_id,
            endpoint_id=wanted,
            secret=None,
            overlap_seconds=overlap,
        )
    return answer(_view(endpoint, keys))


@router.post("/webhook_endpoints/{endpoint_id}/test")
async def test(endpoint_id: str, request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Send an event of a type, of no batch, and tell what the receiver answered.

    A result always has a status, as at OpenAI. That there was no answer is an error that clients do not try again.
    """
    wanted, asked = _parse(endpoint_id), await read(request, Test)
    if asked.event_type not in _KINDS:
        raise _unknown_type("event_type", asked.event_type)
    kind = _KINDS[asked.event_type]
    async with parts.database.durable() as conn:
        delivery_id = await deliveries.send_test(conn, tenant.tenant_id, tenant.account_id, wanted, kind)
    attempt = await _outcome(parts, tenant, wanted, delivery_id)
    if attempt.http_status is None:
        raise _Untested(f"The receiver could not be reached: {FAULTS.get(attempt.error or '', attempt.error)}")
    return answer(
        {
            "object": "webhook_endpoint.test",
            "webhook_endpoint_id": endpoint_id,
            "event_type": asked.event_type,
            "success": True,
            "status_code": attempt.http_status,
        }
    )


@router.get("/webhook_event_types")
async def event_types(tenant: KeyHolder) -> Response:
    """What a webhook can be told of here."""
    return answer({"object": "list", "data": sorted(_KINDS)})


async def _outcome(parts: Parts, tenant: Tenant, endpoint_id: UUID, delivery_id: int) -> Attempt:
    """The first attempt at a delivery, once it has ended. Raises _Untested."""
    deadline = clock.monotonic() + _TEST_SECONDS
    while clock.monotonic() < deadline:
        async with parts.database.relaxed() as conn:
            found, _ = await deliveries.show(conn, tenant.tenant_id, endpoint_id, delivery_id)
        if found.last is not None:
            return found.last
        await asyncio.sleep(_LOOK_SECONDS)
    raise _Untested(f"The test was not sent within {_TEST_SECONDS:g} seconds; is a notifier running?")


async def _checked_url(parts: Parts, tenant: Tenant, url: str) -> endpoints.CheckedUrl:
    async with parts.database.relaxed() as conn:
        hosts = await endpoints.allowed_hosts(conn, tenant.tenant_id)
    return await endpoints.checked_url(parts.egress, url, hosts, where="url", owner=tenant.tenant_id)


def _kinds(event_types: Sequence[str]) -> list[str]:
    """Our kinds of OpenAI's types. Raises BadInput."""
    if not event_types:
        raise BadInput(f"event_types: name at least one of {_KNOWN}")
    for position, told in enumerate(event_types):
        if told not in _KINDS:
            raise _unknown_type(f"event_types[{position}]", told)
    return [_KINDS[told] for told in event_types]


def _unknown_type(where: str, told: str) -> BadInput:
    return BadInput(f"{where}: {told[:60]!r} does not happen here; what does: {_KNOWN}")


def _parse(endpoint_id: str) -> UUID:
    try:
        return UUID(endpoint_id.removeprefix(PREFIX))
    except ValueError:
        raise NotFound(f"No webhook endpoint found with id {endpoint_id[:60]!r}", code=404) from None


def _id(endpoint: Endpoint) -> str:
    return PREFIX + endpoint.endpoint_id.hex


def _view(endpoint: Endpoint, keys: Keys | None = None) -> dict[str, Any]:
    """An endpoint as OpenAI's clients read it, and our fields beside theirs."""
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
