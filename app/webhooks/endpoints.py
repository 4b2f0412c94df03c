"""The verbs of endpoints: where a tenant wants to be told. Foreign and unknown ids read the same (`NotFound`)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NewType
from uuid import UUID, uuid4

from psycopg.rows import class_row

from app import crypto
from app.db.pool import Connection
from app.errors import BadInput, NotFound
from app.webhooks import queries, signing
from app.webhooks.egress import EgressClient, Refused

CheckedUrl = NewType("CheckedUrl", str)
KINDS = ("batch.queued", "batch.succeeded", "batch.failed", "batch.cancelled", "batch.expired")
ORDERS = {"created_at": "created_at", "name": "name", "enabled": "enabled", "source": "coalesce(model, '')"}
_NAME_LENGTH, _URL_LENGTH, _PAGES, _PER_PAGE = 256, 2048, 1_000_000, 100


@dataclass(frozen=True)
class Endpoint:
    """One subscription. `model` None: events of all models. The signing secret is not part of it."""

    endpoint_id: UUID
    tenant_id: int
    name: str
    url: str
    model: str | None
    kinds: list[str]
    format: str
    enabled: bool
    disabled_reason: str | None
    created_at: datetime
    modified_at: datetime


async def checked_url(egress: EgressClient, url: str) -> CheckedUrl:
    """The URL, found fit to be posted to. Asks DNS: call it before a connection is taken. Raises `BadInput`."""
    if not url or len(url) > _URL_LENGTH:
        raise BadInput(f"destination.url: must be 1 to {_URL_LENGTH} characters")
    try:
        await egress.check(url)
    except Refused as refusal:
        raise BadInput(f"destination.url: {refusal}") from None
    return CheckedUrl(url)


async def create(
    conn: Connection,
    *,
    key: bytes,
    tenant_id: int,
    name: str,
    url: CheckedUrl,
    kinds: list[str],
    model: str | None = None,
    enabled: bool = True,
    secret: str | None = None,
) -> tuple[Endpoint, str]:
    """Register an endpoint; returns it and its signing secret, which is shown this once. Raises `BadInput`.

    `key` is `crypto.secret_key`.
    """
    _check_name(name)
    _check_kinds(kinds)
    if secret is not None and (problem := signing.secret_problem(secret)):
        raise BadInput(f"destination.secret: {problem}")
    endpoint_id, secret = uuid4(), secret or signing.new_secret()
    endpoint = await _one(
        conn,
        queries.INSERT_ENDPOINT,
        endpoint_id=endpoint_id,
        tenant_id=tenant_id,
        name=name,
        url=url,
        model=model,
        kinds=list(dict.fromkeys(kinds)),
        enabled=enabled,
        secret=crypto.seal(key, secret.encode(), endpoint_id.bytes),
    )
    return endpoint, secret


async def get(conn: Connection, tenant_id: int, endpoint_id: UUID) -> Endpoint:
    """One endpoint of the tenant. Raises `NotFound`."""
    return await _one(conn, queries.GET_ENDPOINT, tenant_id=tenant_id, endpoint_id=endpoint_id)


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
    if not 1 <= page <= _PAGES or not 1 <= per_page <= _PER_PAGE:
        raise BadInput(f"page: must be 1 to {_PAGES}, and per_page 1 to {_PER_PAGE}")
    if order not in ORDERS:
        raise BadInput(f"order: must be one of {', '.join(ORDERS)}")
    statement = queries.LIST_ENDPOINTS.format(
        columns=queries.ENDPOINT_COLUMNS, order=ORDERS[order], direction="desc" if descending else "asc"
    )
    counted = await (await conn.execute(queries.COUNT_ENDPOINTS, {"tenant_id": tenant_id})).fetchone()
    async with conn.cursor(row_factory=class_row(Endpoint)) as cursor:
        await cursor.execute(
            statement.encode(), {"tenant_id": tenant_id, "limit": per_page, "offset": (page - 1) * per_page}
        )
        return await cursor.fetchall(), counted[0] if counted else 0


async def patch(
    conn: Connection,
    *,
    tenant_id: int,
    endpoint_id: UUID,
    name: str | None = None,
    url: CheckedUrl | None = None,
    kinds: list[str] | None = None,
    enabled: bool | None = None,
) -> Endpoint:
    """Change what is given. Enabling forgets failures; what waited is then sent. Raises `BadInput`, `NotFound`."""
    if name is not None:
        _check_name(name)
    if kinds is not None:
        _check_kinds(kinds)
        kinds = list(dict.fromkeys(kinds))
    return await _one(
        conn,
        queries.UPDATE_ENDPOINT,
        tenant_id=tenant_id,
        endpoint_id=endpoint_id,
        name=name,
        url=url,
        kinds=kinds,
        enabled=enabled,
    )


async def delete(conn: Connection, tenant_id: int, endpoint_id: UUID) -> Endpoint:
    """Remove an endpoint with its deliveries; returns what it was. Raises `NotFound`."""
    return await _one(conn, queries.DELETE_ENDPOINT, tenant_id=tenant_id, endpoint_id=endpoint_id)


async def _one(conn: Connection, statement: str, **values: Any) -> Endpoint:
    async with conn.cursor(row_factory=class_row(Endpoint)) as cursor:
        await cursor.execute(statement.encode(), values)
        endpoint = await cursor.fetchone()
    if endpoint is None:
        raise NotFound("Subscription not found", code=404)
    return endpoint


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > _NAME_LENGTH or "\0" in name:
        raise BadInput(f"name: must be 1 to {_NAME_LENGTH} printable characters")


def _check_kinds(kinds: list[str]) -> None:
    if not kinds:
        raise BadInput(f"events: name at least one of {', '.join(KINDS)}")
    for position, kind in enumerate(kinds):
        if kind not in KINDS:
            raise BadInput(f"events[{position}]: must be one of {', '.join(KINDS)}")
