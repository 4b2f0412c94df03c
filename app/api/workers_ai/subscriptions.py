"""`…/event_subscriptions/subscriptions`: Cloudflare's resource, with our destination type `webhook`.

Shapes: Cloudflare's API reference of event subscriptions. Short event names there (`batch.queued`, …) are our kinds.
"""

from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, ValidationError

from app.api import body
from app.api.deps import Caller, PartsDep
from app.api.envelope import success
from app.errors import BadInput, NotFound
from app.webhooks import endpoints
from app.webhooks.endpoints import Endpoint
from app.webhooks.formats import timestamp

router = APIRouter(prefix="/event_subscriptions/subscriptions")

_BODY_MB = 0.0625
_ALL_MODELS = ("", "*")
Model = TypeVar("Model", bound=BaseModel)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Source(_Strict):
    """Which model's events; without `model_name`, or with `*`, those of every model."""

    type: Literal["workersAi.model"] = "workersAi.model"
    model_name: str | None = None


class Destination(_Strict):
    """Where events go. `secret` is optional; a new one is made and shown once."""

    type: str
    url: str | None = None
    secret: str | None = None
    queue_id: str | None = None


class NewSubscription(_Strict):
    """The body of POST."""

    name: str
    source: Source
    destination: Destination
    events: list[str]
    enabled: bool = True


class Change(_Strict):
    """The body of PATCH."""

    name: str | None = None
    enabled: bool | None = None
    events: list[str] | None = None
    destination: Destination | None = None


class Paging(_Strict):
    """The query of a listing; unknown parameters are ignored."""

    model_config = ConfigDict(extra="ignore")

    page: int = 1
    per_page: int = 20
    order: str = "created_at"
    direction: Literal["asc", "desc"] = "asc"


@router.post("")
async def create(request: Request, tenant: Caller, parts: PartsDep) -> JSONResponse:
    """Register a webhook. The answer alone holds the signing secret."""
    new = await _read(request, NewSubscription)
    model = new.source.model_name
    known = parts.catalogue.resolve(model or "")
    if model is not None and model not in _ALL_MODELS and known is None:
        raise BadInput(f"source.model_name: no such model {model}")
    url = await endpoints.checked_url(parts.egress, _url(new.destination))
    async with parts.database.durable() as conn:
        endpoint, secret = await endpoints.create(
            conn,
            key=parts.secret_key,
            tenant_id=tenant.tenant_id,
            name=new.name,
            url=url,
            kinds=new.events,
            model=known.name if known else None,
            enabled=new.enabled,
            secret=new.destination.secret,
        )
    return success(_view(endpoint, secret))


@router.get("")
async def listing(tenant: Caller, parts: PartsDep, paging: Annotated[Paging, Query()]) -> JSONResponse:
    """A page of subscriptions."""
    async with parts.database.relaxed() as conn:
        found, total = await endpoints.listing(
            conn,
            tenant.tenant_id,
            page=paging.page,
            per_page=paging.per_page,
            order=paging.order,
            descending=paging.direction == "desc",
        )
    pages = -(-total // paging.per_page)
    info = {
        "count": len(found),
        "total_count": total,
        "page": paging.page,
        "per_page": paging.per_page,
        "total_pages": pages,
    }
    return success([_view(endpoint) for endpoint in found], result_info=info)


@router.get("/{subscription_id}")
async def get(subscription_id: str, tenant: Caller, parts: PartsDep) -> JSONResponse:
    """One subscription."""
    async with parts.database.relaxed() as conn:
        return success(_view(await endpoints.get(conn, tenant.tenant_id, _id(subscription_id))))


@router.patch("/{subscription_id}")
async def patch(subscription_id: str, request: Request, tenant: Caller, parts: PartsDep) -> JSONResponse:
    """Change name, enabled, events or the destination's URL."""
    change = await _read(request, Change)
    if change.destination and change.destination.secret:
        raise BadInput("destination.secret: cannot be changed; register a new subscription and delete this one")
    url = await endpoints.checked_url(parts.egress, _url(change.destination)) if change.destination else None
    async with parts.database.durable() as conn:
        endpoint = await endpoints.patch(
            conn,
            tenant_id=tenant.tenant_id,
            endpoint_id=_id(subscription_id),
            name=change.name,
            url=url,
            kinds=change.events,
            enabled=change.enabled,
        )
    return success(_view(endpoint))


@router.delete("/{subscription_id}")
async def delete(subscription_id: str, tenant: Caller, parts: PartsDep) -> JSONResponse:
    """Remove a subscription; the answer is what it was."""
    async with parts.database.durable() as conn:
        return success(_view(await endpoints.delete(conn, tenant.tenant_id, _id(subscription_id))))


async def _read(request: Request, kind: type[Model]) -> Model:
    body.content_type(request)
    try:
        return kind.model_validate(await body.read_json(request, _BODY_MB))
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInput(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from None


def _url(destination: Destination) -> str:
    if destination.type != "webhook":
        raise BadInput(
            f"destination.type: {destination.type!r} is not available here; use "
            '{"type": "webhook", "url": "https://…"}, which is Slackwater\'s own destination'
        )
    if not destination.url:
        raise BadInput("destination.url: a webhook needs its URL")
    return destination.url


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFound("Subscription not found", code=404) from None


def _view(endpoint: Endpoint, secret: str | None = None) -> dict[str, Any]:
    destination: dict[str, Any] = {"type": "webhook", "url": endpoint.url}
    if secret:
        destination["secret"] = secret
    return {
        "id": endpoint.endpoint_id.hex,
        "created_at": timestamp(endpoint.created_at),
        "modified_at": timestamp(endpoint.modified_at),
        "name": endpoint.name,
        "enabled": endpoint.enabled,
        "disabled_reason": endpoint.disabled_reason,
        "source": {"type": "workersAi.model", "model_name": endpoint.model or "*"},
        "destination": destination,
        "events": endpoint.kinds,
    }
