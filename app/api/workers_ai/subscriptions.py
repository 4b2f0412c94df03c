"""`…/event_subscriptions/subscriptions`: Cloudflare's resource, with our destination type `webhook` besides `queues.queue`.

A queue is a name for events that wait at `…/events` until they are acknowledged.
Shapes: Cloudflare's API reference of event subscriptions. Its short event names (`batch.queued`, …) are our kinds of events.
"""

from functools import partial
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app import places
from app.api import body, parameter_limits, response_headers
from app.api.deps import Caller, Parts, PartsDep
from app.api.envelope import success
from app.api.permissions import seen_endpoint
from app.api.unknown_fields import WARNING
from app.engines.catalogue import Catalogue
from app.errors import BadInput, SubscriptionUnknown
from app.queue import wakes
from app.states import EndpointState
from app.tenants.service import Tenant
from app.webhooks import endpoints, registration, url_check
from app.webhooks.endpoints import Endpoint, EventFilter, Keys
from app.webhooks.formats import timestamp
from app.webhooks.url_check import CheckedUrl
from app.webhooks.validation import DeliveryLimits

router = APIRouter(prefix="/event_subscriptions/subscriptions")

WEBHOOK, QUEUE = "webhook", "queues.queue"
_ALL_MODELS = ("", "*")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SubscriptionSource(_Strict):
    """The events of one model; without `model_name`, or with `*`, those of every model.

    `tags`, `metadata`: only events of batches that have all of them.
    """

    type: Literal["workersAi.model"] = "workersAi.model"
    model_name: str | None = None
    tags: list[str] | None = None
    metadata: dict[str, str] | None = None


class Destination(_Strict):
    """The destination of events, and their format in `formats.FORMATS`. Without `secret`, one is generated and shown once."""

    type: str
    url: str | None = None
    secret: str | None = None
    format: str | None = None
    asymmetric: bool = False
    max_in_flight: int | None = None
    max_per_second: float | None = None
    ordered: bool | None = None
    queue_id: str | None = None

    def limits(self) -> dict[str, Any]:
        """The delivery limits in the body. The rate may be null: no limit."""
        given = {name: getattr(self, name) for name in self.model_fields_set & {"max_in_flight", "ordered"}}
        given = {name: value for name, value in given.items() if value is not None}
        return given | ({"max_per_second": self.max_per_second} if "max_per_second" in self.model_fields_set else {})


class NewSubscription(_Strict):
    """The body of POST."""

    name: str
    source: SubscriptionSource
    destination: Destination
    events: list[str]
    enabled: bool = True


class SubscriptionPatch(_Strict):
    """The body of PATCH."""

    name: str | None = None
    enabled: bool | None = None
    events: list[str] | None = None
    source: SubscriptionSource | None = None
    destination: Destination | None = None


class Paging(_Strict):
    """The query of a listing; unknown parameters are ignored."""

    model_config = ConfigDict(extra="ignore", strict=False)

    after: parameter_limits.Text | None = Field(None, description="the `cursor` of the page before, instead of `page`")
    page: int = Field(
        1,
        json_schema_extra=parameter_limits.declared(1, endpoints.MOST_PAGES),
        description="counts the subscriptions that there are now: who deletes some while paging sends `after`, or skips others",
    )
    per_page: int = Field(20, json_schema_extra=parameter_limits.declared(1, endpoints.MOST_LISTED))
    order: str = Field(endpoints.BY_TIME, json_schema_extra={"enum": [*endpoints.ORDERS]})
    direction: Literal["asc", "desc"] = "asc"


@router.post("")
async def create(request: Request, tenant: Caller, parts: PartsDep) -> Response:
    """Register a webhook or a queue. Only this answer contains a webhook's signing secret."""
    new = await body.read_model(request, NewSubscription)
    to, of = new.destination, _filter(new.source, parts.catalogue)
    values: dict[str, Any] = {"tenant_id": tenant.tenant_id, "name": new.name, "kinds": new.events, "of": of}
    values |= {"shape": to.format or "workers_ai"}
    if to.type == QUEUE:
        _check_queue(to)
        state = EndpointState.ACTIVE if new.enabled else EndpointState.DISABLED
        async with parts.database.transaction() as conn:
            await registration.check_room(conn, tenant.tenant_id, parts.settings.webhook_endpoints)
            return success(
                view(await registration.create_queue(conn, queue_id=to.queue_id or "", state=state, **values))
            )
    url = await _checked_url(request, parts, tenant, to)
    async with parts.database.transaction() as conn:
        await registration.check_room(conn, tenant.tenant_id, parts.settings.webhook_endpoints)
        endpoint, keys = await registration.create(
            conn,
            key=parts.secret_key,
            account_id=tenant.account_id,
            url=url,
            limits=DeliveryLimits(**to.limits()),
            state=EndpointState.PENDING if new.enabled else EndpointState.DISABLED,
            secret=to.secret,
            asymmetric=to.asymmetric,
            **values,
        )
    wakes.notify({})
    return success(view(endpoint, keys))


@router.get("")
async def listing(tenant: Caller, parts: PartsDep, paging: Annotated[Paging, Query()]) -> Response:
    """A page of subscriptions. `page` counts from the first one there is; whoever deletes while paging goes on by `after`."""
    after = places.parsed(paging.after, UUID)
    async with parts.database.relaxed() as conn:
        found, total = await endpoints.listing(
            conn,
            tenant.tenant_id,
            page=paging.page,
            per_page=paging.per_page,
            order=paging.order,
            descending=paging.direction == "desc",
            after=after,
        )
    full = len(found) == paging.per_page and paging.order == endpoints.BY_TIME
    pages = -(-total // paging.per_page)
    info = {
        "count": len(found),
        "total_count": total,
        "page": paging.page,
        "per_page": paging.per_page,
        "total_pages": pages,
        "cursor": found[-1].endpoint_id.hex if full else None,
    }
    return success([view(seen_endpoint(tenant, endpoint)) for endpoint in found], result_info=info)


@router.get("/{subscription_id}")
async def get(subscription_id: str, tenant: Caller, parts: PartsDep) -> Response:
    """One subscription."""
    async with parts.database.relaxed() as conn:
        endpoint = await endpoints.get(conn, tenant.tenant_id, parse_id(subscription_id))
    return success(view(seen_endpoint(tenant, endpoint)))


@router.patch("/{subscription_id}")
async def patch(subscription_id: str, request: Request, tenant: Caller, parts: PartsDep) -> Response:
    """Change name, enabled, events, tags, metadata, the destination's URL and limits."""
    endpoint_id, change = parse_id(subscription_id), await body.read_model(request, SubscriptionPatch)
    url, to = None, change.destination
    if to is not None:
        if to.secret or to.format or to.asymmetric:
            raise BadInput(
                "destination: only url and limits can be changed; register a new subscription, or rotate its secret"
            )
        url = await _checked_url(request, parts, tenant, to) if to.url else None
    async with parts.database.transaction() as conn:
        endpoint = await endpoints.patch(
            conn,
            tenant_id=tenant.tenant_id,
            endpoint_id=endpoint_id,
            name=change.name,
            url=url,
            kinds=change.events,
            tags=change.source.tags if change.source else None,
            metadata=change.source.metadata if change.source else None,
            limits=to.limits() if to else None,
        )
        if change.enabled is not None and change.enabled != endpoint.enabled:
            verb: endpoints.Switch = "enable" if change.enabled else "disable"
            endpoint = await endpoints.switch(conn, tenant.tenant_id, tenant.account_id, endpoint_id, verb)
    return success(view(endpoint))


@router.delete("/{subscription_id}")
async def delete(subscription_id: str, tenant: Caller, parts: PartsDep) -> Response:
    """Remove a subscription; the answer shows its last state."""
    async with parts.database.durable() as conn:
        return success(view(await endpoints.delete(conn, tenant.tenant_id, parse_id(subscription_id))))


def _filter(source: SubscriptionSource, models: Catalogue) -> EventFilter:
    name = source.model_name
    known = models.resolve(name or "")
    if name is not None and name not in _ALL_MODELS and known is None:
        raise BadInput(f"source.model_name: {models.unknown(name)}")
    return EventFilter(known.name if known else None, source.tags or (), source.metadata or {})


def _check_queue(to: Destination) -> None:
    """Raise BadInput for fields that only a webhook has."""
    sent = to.model_fields_set & {"url", "secret", "asymmetric", "max_in_flight", "max_per_second", "ordered"}
    if sent:
        raise BadInput(f"destination.{min(sent)}: a queue has none; fetch its events at …/events")
    if not to.queue_id:
        raise BadInput("destination.queue_id: name the queue; any name works, and events are fetched by it")


async def _checked_url(request: Request, parts: Parts, tenant: Tenant, to: Destination) -> CheckedUrl:
    if to.type != WEBHOOK:
        raise BadInput(f"destination.type: must be {WEBHOOK} or {QUEUE}, not {to.type!r}")
    if not to.url:
        raise BadInput("destination.url: a webhook needs its URL")
    audit = parts.admission.audit
    checked = await url_check.checked_for_tenant(
        parts.database, parts.egress, audit, tenant, to.url, unresolved=partial(_warn, request)
    )
    parts.admission.check_webhook(tenant, to.url)
    return checked


def _warn(request: Request, host: str) -> None:
    response_headers.add(request, {WARNING: f"destination.url: {url_check.warning(host)}"})


def parse_id(text: str) -> UUID:
    """The id of a subscription. Raises NotFound for an invalid one."""
    try:
        return UUID(text)
    except ValueError:
        raise SubscriptionUnknown from None


def view(endpoint: Endpoint, keys: Keys | None = None) -> dict[str, Any]:
    """A subscription in the form that callers read."""
    if endpoint.url is None:
        destination: dict[str, Any] = {"type": QUEUE, "queue_id": endpoint.queue_id, "format": endpoint.format}
    else:
        limits = {name: getattr(endpoint, name) for name in ("max_in_flight", "max_per_second", "ordered")}
        destination = {"type": WEBHOOK, "url": endpoint.url, "format": endpoint.format, **limits}
    if keys is not None:
        destination |= {"secret": keys.secret} | ({"public_key": keys.public} if keys.public else {})
    source = {"type": "workersAi.model", "model_name": endpoint.model or "*"}
    return {
        "id": endpoint.endpoint_id.hex,
        "created_at": timestamp(endpoint.created_at),
        "modified_at": timestamp(endpoint.modified_at),
        "name": endpoint.name,
        "enabled": endpoint.enabled,
        "state": endpoint.state,
        "disabled_reason": endpoint.reason,
        "failing_since": timestamp(endpoint.failing_since) if endpoint.failing_since else None,
        "source": {**source, "tags": endpoint.tags, "metadata": endpoint.metadata},
        "destination": destination,
        "events": endpoint.kinds,
    }
