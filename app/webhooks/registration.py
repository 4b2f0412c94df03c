"""Registers endpoints: webhooks, to which events are sent, and queues, from which they are pulled."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from psycopg.types.json import Jsonb

from app import cells, crypto
from app.audit.acts import Act
from app.db.pool import Connection
from app.errors import BadInput
from app.states import ENDPOINT, EndpointState
from app.webhooks import endpoint_records, endpoints, signing, validation
from app.webhooks import endpoint_sql as sql
from app.webhooks.endpoints import Endpoint, EventFilter, Keys
from app.webhooks.url_check import CheckedUrl
from app.webhooks.validation import DeliveryLimits

_ALL_EVENTS, _DEFAULT_LIMITS = EventFilter(), DeliveryLimits()


async def check_room(conn: Connection, tenant_id: int, most: int) -> None:
    """Check that the tenant has fewer than `most` endpoints. Raises `BadInput`.

    Call it in the transaction that registers the endpoint. It locks the tenant, so registrations of one tenant run in turn.
    """
    values = {"tenant_id": tenant_id}
    await conn.execute(sql.LOCK_TENANT.encode(), values)
    counted = await (await conn.execute(sql.COUNT_ENDPOINTS.encode(), values)).fetchone()
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
    of: EventFilter = _ALL_EVENTS,
    limits: DeliveryLimits = _DEFAULT_LIMITS,
    state: EndpointState = ENDPOINT.initial,  # type: ignore[assignment]
    secret: str | None = None,
    asymmetric: bool = False,
    shape: str = "workers_ai",
) -> tuple[Endpoint, Keys]:
    """Register a webhook and send it a test event, which makes it active. Returns it and its keys, which are shown only here.

    `key`: `crypto.secret_key`. `shape`: one of `formats.FORMATS`. `asymmetric`: sign with ed25519 too. Call in a transaction.
    Raises `BadInput`.
    """
    validation.check_limits(limits)
    validation.check_secret(secret)
    endpoint_id, secret = cells.new_timed_id(), secret or signing.new_secret()
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
        await endpoints.send_test(conn, tenant_id, account_id, endpoint_id)
    return endpoint, Keys(secret, signing.public_key(private) if private else None)


async def create_queue(
    conn: Connection,
    *,
    tenant_id: int,
    name: str,
    queue_id: str,
    kinds: Sequence[str],
    of: EventFilter = _ALL_EVENTS,
    state: EndpointState = EndpointState.ACTIVE,
    shape: str = "workers_ai",
) -> Endpoint:
    """Register an endpoint whose events are pulled (`pull_queue`). Raises `BadInput`."""
    validation.check_queue(queue_id)
    return await _insert(
        conn,
        endpoint_id=cells.new_timed_id(),
        tenant_id=tenant_id,
        name=name,
        kinds=kinds,
        of=of,
        shape=shape,
        state=state,
        limits=_DEFAULT_LIMITS,
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
    values |= {
        "created_at": cells.made_at(values["endpoint_id"]),
        "tags": list(of.tags),
        "metadata": Jsonb(dict(of.metadata)),
        **asdict(limits),
    }
    async with conn.transaction():
        made = await endpoints.one(conn, sql.INSERT_ENDPOINT, **values)
        after = endpoint_records.terms(made)
        await endpoint_records.record(conn, made.tenant_id, Act.WEBHOOK_CREATE, made.endpoint_id, after=after)
    return made
