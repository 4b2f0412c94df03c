"""The verbs of endpoints: where a tenant wants to be told. Foreign and unknown ids read the same (`NotFound`)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal, NewType
from uuid import UUID, uuid4

import orjson
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from app import crypto
from app.db.pool import Connection
from app.errors import BadInput, Conflict, NotFound
from app.states import ENDPOINT, EndpointState
from app.webhooks import service, signing, sql, validation
from app.webhooks.egress import EgressClient, TargetRefused
from app.webhooks.validation import DeliveryLimits

CheckedUrl = NewType("CheckedUrl", str)
Switch = Literal["pause", "disable", "enable"]
_BY_OWNER = "by its owner"
_NO_REQUEST = str(UUID(int=0))
ORDERS = {"created_at": "created_at", "name": "name", "enabled": "state = 'disabled'", "source": "coalesce(model, '')"}
MOST_PAGES, MOST_LISTED = 1_000_000, 100


@dataclass(frozen=True)
class Keys:
    """What a receiver verifies with, readable this once. `public`: of the ed25519 signatures, if there are any."""

    secret: str
    public: str | None = None


@dataclass(frozen=True)
class EventFilter:
    """Which batches' events: of this model (None: all), with all these tags and pairs of metadata."""

    model: str | None = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)


_ALL, _NO_LIMITS = EventFilter(), DeliveryLimits()


@dataclass(frozen=True)
class Endpoint:
    """One subscription. `model` None: events of all models; `tags`, `metadata`: only those of batches that have them all.

    Its events are sent to `url`, or fetched by `queue_id`; the other is None.
    `reason`: why it is disabled. The keys are not part of it.
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

    @property
    def enabled(self) -> bool:
        """Whether it is told of what happens, now or once it has accepted a test event."""
        return self.state in (EndpointState.PENDING, EndpointState.ACTIVE)


async def checked_url(
    egress: EgressClient,
    url: str,
    hosts: Sequence[str] | None = None,
    *,
    where: str = "destination.url",
    owner: int | None = None,
) -> CheckedUrl:
    """The URL, found fit to be posted to. Asks DNS: call it before a connection is taken. Raises `BadInput`.

    `hosts`: the only ones that its tenant may name, as `allowed_hosts` has them; None: any. `where`: the field it stands in.
    """
    validation.check_length(url, where)
    try:
        await egress.check(url, hosts, owner=owner)
    except TargetRefused as refusal:
        raise BadInput(f"{where}: {refusal}") from None
    return CheckedUrl(url)


async def allowed_hosts(conn: Connection, tenant_id: int) -> list[str] | None:
    """The only hosts that webhooks of this tenant may go to; None: any that the settings allow."""
    row = await (await conn.execute(sql.HOSTS.encode(), [tenant_id])).fetchone()
    return row[0] if row else None


async def check_room(conn: Connection, tenant_id: int, most: int) -> None:
    """Raise BadInput where the tenant has that many endpoints. Call in the transaction that makes one: it waits for others."""
    await conn.execute(sql.LOCK_TENANT.encode(), {"tenant_id": tenant_id})
    counted = await (await conn.execute(sql.COUNT_ENDPOINTS.encode(), {"tenant_id": tenant_id})).fetchone()
    if counted and counted[0] >= most:
        raise BadInput(
            f"This account has {counted[0]} subscriptions and webhook endpoints, and may have {most}: delete one that is not "
            "needed, or ask the operator to raise SLACKWATER_WEBHOOK_ENDPOINTS."
        )


async def create(
    conn: Connection,
    *,
    key: bytes,
    tenant_id: int,
    account_id: str,
    name: str,
    url: CheckedUrl,
    kinds: Sequence[str],
    of: EventFilter = _ALL,
    limits: DeliveryLimits = _NO_LIMITS,
    state: EndpointState = ENDPOINT.initial,  # type: ignore[assignment]
    secret: str | None = None,
    asymmetric: bool = False,
    shape: str = "workers_ai",
) -> tuple[Endpoint, Keys]:
    """Register an endpoint, and send it the test event that makes it active; returns it and its keys, shown this once.

    Raises `BadInput`. `key` is `crypto.secret_key`; `shape` names one of `formats.FORMATS`; `asymmetric`: it is signed with
    ed25519 as well. Call in a transaction.
    """
    validation.check_limits(limits)
    validation.check_secret(secret)
    endpoint_id, secret = uuid4(), secret or signing.new_secret()
    private = signing.new_signing_key() if asymmetric else None
    endpoint = await _insert(
        conn,
        endpoint_id=endpoint_id,
        tenant_id=tenant_id,
        name=name,
        kinds=kinds,
        of=of,
        shape=shape,
        state=state,
        limits=limits,
        url=url,
        queue_id=None,
        secret=crypto.seal(key, secret.encode(), endpoint_id.bytes),
        signing_key=crypto.seal(key, private, endpoint_id.bytes) if private else None,
    )
    if endpoint.state == EndpointState.PENDING:
        await send_test(conn, tenant_id, account_id, endpoint_id)
    return endpoint, Keys(secret, signing.public_key(private) if private else None)


async def create_queue(
    conn: Connection,
    *,
    tenant_id: int,
    name: str,
    queue_id: str,
    kinds: Sequence[str],
    of: EventFilter = _ALL,
    state: EndpointState = EndpointState.ACTIVE,
    shape: str = "workers_ai",
) -> Endpoint:
    """Register an endpoint whose events are fetched (`fetching`) instead of sent. Raises `BadInput`."""
    validation.check_queue(queue_id)
    return await _insert(
        conn,
        endpoint_id=uuid4(),
        tenant_id=tenant_id,
        name=name,
        kinds=kinds,
        of=of,
        shape=shape,
        state=state,
        limits=_NO_LIMITS,
        url=None,
        queue_id=queue_id,
        secret=None,
        signing_key=None,
    )


async def _insert(
    conn: Connection,
    *,
    name: str,
    kinds: Sequence[str],
    of: EventFilter,
    shape: str,
    limits: DeliveryLimits,
    **values: Any,
) -> Endpoint:
    validation.check_name(name)
    validation.check_tags(of.tags)
    validation.check_metadata(of.metadata)
    validation.check_shape(shape)
    validation.check_kinds(kinds, shape)
    values |= {"name": name, "kinds": list(dict.fromkeys(kinds)), "format": shape, "model": of.model}
    values |= {"tags": list(of.tags), "metadata": Jsonb(dict(of.metadata)), **asdict(limits)}
    return await _one(conn, sql.INSERT_ENDPOINT, **values)


async def send_test(
    conn: Connection, tenant_id: int, account_id: str, endpoint_id: UUID, kind: str = sql.TEST_KIND
) -> int:
    """An event of no batch for this endpoint alone. Returns the delivery's id. Raises `NotFound`."""
    data = orjson.dumps({"request_id": _NO_REQUEST, "account_id": account_id})
    values = {"tenant_id": tenant_id, "endpoint_id": endpoint_id, "kind": kind, "data": data}
    row = await (await conn.execute(sql.TEST.encode(), values)).fetchone()
    if row is None:
        raise _no_endpoint()
    return int(row[0])


async def get(conn: Connection, tenant_id: int, endpoint_id: UUID) -> Endpoint:
    """One endpoint of the tenant. Raises `NotFound`."""
    return await _one(conn, sql.GET_ENDPOINT, tenant_id=tenant_id, endpoint_id=endpoint_id)


async def listing(
    conn: Connection,
    tenant_id: int,
    *,
    page: int = 1,
    per_page: int = 20,
    order: str = "created_at",
    descending: bool = False,
) -> tuple[list[Endpoint], int]:
    """A page (from 1) of the tenant's endpoints, and how many there are in all. Raises `BadInput`."""
    if not 1 <= page <= MOST_PAGES or not 1 <= per_page <= MOST_LISTED:
        raise BadInput(f"page: must be 1 to {MOST_PAGES}, and per_page 1 to {MOST_LISTED}")
    if order not in ORDERS:
        raise BadInput(f"order: must be one of {', '.join(ORDERS)}")
    statement = sql.LIST_ENDPOINTS.format(
        columns=sql.ENDPOINT_COLUMNS, order=ORDERS[order], direction="desc" if descending else "asc"
    )
    counted = await (await conn.execute(sql.COUNT_ENDPOINTS, {"tenant_id": tenant_id})).fetchone()
    async with conn.cursor(row_factory=class_row(Endpoint)) as cursor:
        await cursor.execute(
            statement.encode(), {"tenant_id": tenant_id, "limit": per_page, "offset": (page - 1) * per_page}
        )
        return await cursor.fetchall(), counted[0] if counted else 0


async def newest(
    conn: Connection, tenant_id: int, *, after: UUID | None = None, limit: int = 20
) -> tuple[list[Endpoint], bool]:
    """The tenant's webhooks made before `after`, the newest first, and whether there are more. Raises `BadInput`."""
    if not 1 <= limit <= MOST_LISTED:
        raise BadInput(f"limit: must be 1 to {MOST_LISTED}")
    async with conn.cursor(row_factory=class_row(Endpoint)) as cursor:
        values = {"tenant_id": tenant_id, "after": after, "limit": limit + 1}
        await cursor.execute(sql.NEWEST_ENDPOINTS.encode(), values)
        found = await cursor.fetchall()
    return found[:limit], len(found) > limit


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
    """Change what is given; `limits` by the names of `Limits`. Raises `BadInput`, `NotFound`."""
    known = await get(conn, tenant_id, endpoint_id)
    if known.url is None and (url is not None or limits):
        raise BadInput("destination: its events are fetched, so it has no url and no limits")
    if name is not None:
        validation.check_name(name)
    if kinds is not None:
        validation.check_kinds(kinds, known.format)
        kinds = list(dict.fromkeys(kinds))
    validation.check_tags(tags or ())
    validation.check_metadata(metadata or {})
    now = {name: getattr(known, name) for name in asdict(_NO_LIMITS)} | dict(limits or {})
    validation.check_limits(DeliveryLimits(**now))
    return await _one(
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


async def switch(conn: Connection, tenant_id: int, account_id: str, endpoint_id: UUID, verb: Switch) -> Endpoint:
    """Pause, disable or enable; done before is done. Who is enabled gets a test event first. Raises `NotFound`.

    Paused, what happens waits for it; disabled, it is told nothing, and `deliveries.replay` makes up for it.
    Call in a transaction.
    """
    known = await get(conn, tenant_id, endpoint_id)
    moved = await service.move(conn, tenant_id, endpoint_id, verb, _BY_OWNER if verb == "disable" else None)
    if moved and verb == "enable" and known.url is None:
        await service.move(conn, tenant_id, endpoint_id, "verify")
    elif moved and verb == "enable":
        await send_test(conn, tenant_id, account_id, endpoint_id)
    return await get(conn, tenant_id, endpoint_id)


async def rotate_secret(
    conn: Connection, *, key: bytes, tenant_id: int, endpoint_id: UUID, secret: str | None, overlap_seconds: float
) -> tuple[Endpoint, Keys]:
    """Change the signing secret; for `overlap_seconds` the old one signs too. Returns the endpoint and the new secret, which is
    shown this once. Raises `BadInput`, `NotFound`.
    """
    validation.check_secret(secret, "secret")
    if not 0 <= overlap_seconds <= validation.MOST_OVERLAP_SECONDS:
        raise BadInput(f"overlap_hours: must be 0 to {validation.MOST_OVERLAP_SECONDS / 3600:g}")
    if (await get(conn, tenant_id, endpoint_id)).url is None:
        raise Conflict("The subscription has no secret: its events are fetched")
    secret = secret or signing.new_secret()
    sealed = crypto.seal(key, secret.encode(), endpoint_id.bytes)
    values = {"tenant_id": tenant_id, "endpoint_id": endpoint_id, "secret": sealed, "overlap": overlap_seconds}
    return await _one(conn, sql.ROTATE_SECRET, **values), Keys(secret)


async def delete(conn: Connection, tenant_id: int, endpoint_id: UUID) -> Endpoint:
    """Let an endpoint be gone; returns what it was. The steward removes it, deliveries first (`removal`). Raises `NotFound`."""
    known = await get(conn, tenant_id, endpoint_id)
    values = {"tenant_id": tenant_id, "endpoint_id": endpoint_id}
    if (await conn.execute(sql.CLOSE_ENDPOINT.encode(), values)).rowcount == 0:
        raise _no_endpoint()
    return known


async def _one(conn: Connection, statement: str, **values: Any) -> Endpoint:
    async with conn.cursor(row_factory=class_row(Endpoint)) as cursor:
        await cursor.execute(statement.encode(), values)
        endpoint = await cursor.fetchone()
    if endpoint is None:
        raise _no_endpoint()
    return endpoint


def _no_endpoint() -> NotFound:
    return NotFound("Subscription not found", code=404)
