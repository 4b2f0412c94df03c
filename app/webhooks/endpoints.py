"""Reads and changes endpoints, which are the subscriptions of a tenant. Each change is one transaction, with its audit row.

An id that is unknown and an id of another tenant raise the same `NotFound`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, Self
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from app import clock, crypto, places
from app.audit.acts import Act
from app.audit.record import changed
from app.db.pool import Connection
from app.errors import BadInput, Conflict, PageTooLong, SubscriptionUnknown
from app.events import NO_REQUEST, EventData, EventKind
from app.states import EndpointState
from app.webhooks import emitter, endpoint_records, endpoint_state, signing, validation
from app.webhooks import endpoint_sql as sql
from app.webhooks.endpoint_records import origin
from app.webhooks.url_check import CheckedUrl
from app.webhooks.validation import DeliveryLimits

Switch = Literal["pause", "disable", "enable"]
_BY_OWNER = "by its owner"
_SWITCHED = {"pause": Act.WEBHOOK_PAUSE, "disable": Act.WEBHOOK_DISABLE, "enable": Act.WEBHOOK_ENABLE}
BY_TIME = "created_at"
ORDERS = {BY_TIME: "created_at", "name": "name", "enabled": "state = 'disabled'", "source": "coalesce(model, '')"}
MOST_PAGES, MOST_LISTED = 1_000_000, 100


@dataclass(frozen=True)
class Keys:
    """What a receiver verifies signatures with; `public` only if they are ed25519 too. Shown once, and then stored sealed."""

    secret: str
    public: str | None = None


@dataclass(frozen=True)
class EventFilter:
    """Selects events by their batch: of this model (None: all), with all these tags and all this metadata."""

    model: str | None = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Endpoint:
    """One subscription, without its keys. `model`, `tags`, `metadata`: see `EventFilter`.

    Its events are sent to `url` or pulled from `queue_id`; the other one is None. `reason`: why it is disabled.
    """

    endpoint_id: UUID
    tenant_id: int
    name: str
    url: str | None
    queue_id: str | None
    model: str | None
    kinds: list[str]
    format: str
    tags: list[str]
    metadata: dict[str, str]
    ordered: bool
    max_in_flight: int
    max_per_second: float | None
    state: str
    reason: str | None
    failing_since: datetime | None
    created_at: datetime
    modified_at: datetime

    def masked(self) -> Self:
        """The same with the origin of its URL alone: the rest may be a credential."""
        return replace(self, url=self.url and origin(self.url))

    @property
    def enabled(self) -> bool:
        """Whether it gets events, now or after it has accepted a test event."""
        return self.state in (EndpointState.PENDING, EndpointState.ACTIVE)


async def send_test(
    conn: Connection, tenant_id: int, account_id: str, endpoint_id: UUID, kind: str = EventKind.TEST
) -> int:
    """Send an event of no batch to this endpoint only. Returns the delivery's id. Raises `NotFound`."""
    data = EventData(request_id=NO_REQUEST, account_id=account_id)
    delivery_id = await emitter.emit_test(conn, tenant_id, endpoint_id, kind, data)
    if delivery_id is None:
        raise SubscriptionUnknown
    return delivery_id


async def get(conn: Connection, tenant_id: int, endpoint_id: UUID) -> Endpoint:
    """One endpoint of the tenant. Raises `NotFound`."""
    return await one(conn, sql.GET_ENDPOINT, tenant_id=tenant_id, endpoint_id=endpoint_id)


async def listing(
    conn: Connection,
    tenant_id: int,
    *,
    page: int = 1,
    per_page: int = 20,
    order: str = BY_TIME,
    descending: bool = False,
    after: UUID | None = None,
) -> tuple[list[Endpoint], int]:
    """A page (from 1) of the tenant's endpoints, and how many there are in all. `after`: it begins behind that one, which may
    have been deleted; then the order is BY_TIME. Raises BadInput, PlaceUnknown.
    """
    if not 1 <= page <= MOST_PAGES or not 1 <= per_page <= MOST_LISTED:
        raise BadInput(f"page: must be 1 to {MOST_PAGES}, and per_page 1 to {MOST_LISTED}")
    if order not in ORDERS:
        raise BadInput(f"order: must be one of {', '.join(ORDERS)}")
    if after is not None and order != BY_TIME:
        raise BadInput(f"after: a list ordered by {order} has only pages; leave after out, or order by {BY_TIME}")
    direction, beyond = ("desc", "<") if descending else ("asc", ">")
    statement = sql.LIST_ENDPOINTS.format(order=ORDERS[order], direction=direction, beyond=beyond)
    values = {"tenant_id": tenant_id, "after": after, "after_at": places.time_of(after)}
    values |= {"limit": per_page, "offset": (page - 1) * per_page if after is None else 0}
    counted = await (await conn.execute(sql.COUNT_ENDPOINTS, {"tenant_id": tenant_id})).fetchone()
    async with conn.cursor(row_factory=class_row(Endpoint)) as cursor:
        await cursor.execute(statement.encode(), values)
        return await cursor.fetchall(), counted[0] if counted else 0


async def newest(
    conn: Connection, tenant_id: int, *, after: UUID | None = None, limit: int = 20
) -> tuple[list[Endpoint], bool]:
    """The tenant's webhooks made before `after`, the newest first, and whether there are more. `after` may have been deleted.

    Raises BadInput, PlaceUnknown.
    """
    if not 1 <= limit <= MOST_LISTED:
        raise PageTooLong(limit, MOST_LISTED)
    async with conn.cursor(row_factory=class_row(Endpoint)) as cursor:
        values = {"tenant_id": tenant_id, "after": after, "after_at": places.time_of(after), "limit": limit + 1}
        await cursor.execute(sql.NEWEST_ENDPOINTS.encode(), values)
        page = await cursor.fetchall()
    return page[:limit], len(page) > limit


async def patch(
    conn: Connection,
    *,
    tenant_id: int,
    endpoint_id: UUID,
    name: str | None = None,
    url: CheckedUrl | None = None,
    kinds: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
    limits: Mapping[str, Any] | None = None,
) -> Endpoint:
    """Change what is given. `limits`: fields of `DeliveryLimits` by name. Raises `BadInput`, `NotFound`."""
    async with conn.transaction():
        endpoint = await _locked(conn, tenant_id, endpoint_id)
        if endpoint.url is None and (url is not None or limits):
            raise BadInput("destination: the events of this subscription are pulled, so it has no url and no limits")
        if name is not None:
            validation.check_name(name)
        if kinds is not None:
            validation.check_kinds(kinds, endpoint.format)
            kinds = list(dict.fromkeys(kinds))
        validation.check_tags(tags or ())
        validation.check_metadata(metadata or {})
        now = {name: getattr(endpoint, name) for name in asdict(DeliveryLimits())} | dict(limits or {})
        validation.check_limits(DeliveryLimits(**now))
        patched = await one(
            conn,
            sql.UPDATE_ENDPOINT,
            tenant_id=tenant_id,
            endpoint_id=endpoint_id,
            name=name,
            url=url,
            kinds=kinds,
            tags=None if tags is None else list(tags),
            metadata=None if metadata is None else Jsonb(dict(metadata)),
            **now,
        )
        before, after = changed(endpoint_records.terms(endpoint), endpoint_records.terms(patched))
        if after:
            await endpoint_records.record(conn, tenant_id, Act.WEBHOOK_CHANGE, endpoint_id, before, after)
        return patched


async def _locked(conn: Connection, tenant_id: int, endpoint_id: UUID) -> Endpoint:
    """One endpoint of the tenant, which nobody else changes until the transaction ends. Raises `NotFound`."""
    return await one(conn, sql.LOCK_ENDPOINT, tenant_id=tenant_id, endpoint_id=endpoint_id)


async def switch(conn: Connection, tenant_id: int, account_id: str, endpoint_id: UUID, verb: Switch) -> Endpoint:
    """Pause, disable or enable an endpoint; a repeated call changes nothing. Raises `NotFound`. Call in a transaction.

    While it is paused, its events wait. While it is disabled, it gets none; `deliveries.replay` sends them later. Once enabled,
    it first has to accept a test event.
    """
    endpoint = await _locked(conn, tenant_id, endpoint_id)
    if not await endpoint_state.change(conn, tenant_id, endpoint_id, verb, _BY_OWNER if verb == "disable" else None):
        return endpoint
    if verb == "enable" and endpoint.url is None:
        await endpoint_state.change(conn, tenant_id, endpoint_id, "verify")
    elif verb == "enable":
        await send_test(conn, tenant_id, account_id, endpoint_id)
    switched = await get(conn, tenant_id, endpoint_id)
    states = {"state": str(endpoint.state)}, {"state": str(switched.state)}
    await endpoint_records.record(conn, tenant_id, _SWITCHED[verb], endpoint_id, *states)
    return switched


async def rotate_secret(
    conn: Connection, *, key: bytes, tenant_id: int, endpoint_id: UUID, secret: str | None, overlap_seconds: float
) -> tuple[Endpoint, Keys]:
    """Change the signing secret, and the ed25519 key if it has one. For `overlap_seconds`, the old ones sign deliveries, too.

    Returns the endpoint and the new keys, which are shown only here. Raises `BadInput`, `NotFound`, `Conflict`.
    """
    validation.check_secret(secret, "secret")
    if not 0 <= overlap_seconds <= validation.MOST_OVERLAP_SECONDS:
        raise BadInput(f"overlap_hours: must be 0 to {validation.MOST_OVERLAP_SECONDS / 3600:g}")
    if (await get(conn, tenant_id, endpoint_id)).url is None:
        raise Conflict("The subscription has no secret, because its events are pulled")
    secret, private = secret or signing.new_secret(), signing.new_signing_key()
    values = {"tenant_id": tenant_id, "endpoint_id": endpoint_id, "overlap": overlap_seconds}
    values |= {
        "secret": crypto.seal(key, secret.encode(), endpoint_id.bytes),
        "signing_key": crypto.seal(key, private, endpoint_id.bytes),
    }
    async with conn.transaction():
        row = await (await conn.execute(sql.IS_ASYMMETRIC, values)).fetchone()
        rotated = await one(conn, sql.ROTATE_SECRET, **values)
        until = clock.iso(clock.now() + timedelta(seconds=overlap_seconds)) if overlap_seconds else None
        after = {"old_secret_until": until}
        await endpoint_records.record(conn, tenant_id, Act.WEBHOOK_ROTATE, endpoint_id, after=after)
    return rotated, Keys(secret, signing.public_key(private) if row and row[0] else None)


async def delete(conn: Connection, tenant_id: int, endpoint_id: UUID) -> Endpoint:
    """Close an endpoint and return it. The steward removes its rows (`endpoint_removal`). Raises `NotFound`."""
    async with conn.transaction():
        endpoint = await _locked(conn, tenant_id, endpoint_id)
        values = {"tenant_id": tenant_id, "endpoint_id": endpoint_id}
        if (await conn.execute(sql.CLOSE_ENDPOINT.encode(), values)).rowcount == 0:
            raise SubscriptionUnknown
        before = endpoint_records.terms(endpoint)
        await endpoint_records.record(conn, tenant_id, Act.WEBHOOK_DELETE, endpoint_id, before)
    return endpoint


async def one(conn: Connection, statement: str, **values: Any) -> Endpoint:
    """The endpoint that a statement returns. Raises SubscriptionUnknown if it returns none."""
    async with conn.cursor(row_factory=class_row(Endpoint)) as cursor:
        await cursor.execute(statement.encode(), values)
        endpoint = await cursor.fetchone()
    if endpoint is None:
        raise SubscriptionUnknown
    return endpoint
