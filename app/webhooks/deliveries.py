"""What an owner and an operator do with past deliveries: list them, send them again, replay a period, test an endpoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app import clock, events, trace_context
from app.audit.acts import Act
from app.db.pool import Connection
from app.errors import BadInput, Conflict, NotFound, PageTooLong
from app.events import EventKind
from app.states import DELIVERY, DeliveryState, EndpointState
from app.webhooks import endpoint_records, endpoints, validation
from app.webhooks import history_sql as sql
from app.webhooks.endpoints import Endpoint

MOST_LISTED = 100
MOST_REPLAYED = 10_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """One HTTP request. `error`: its class, None for a 2xx. `body`: the first bytes of the response, None in a listing."""

    n: int
    started_at: datetime
    duration_ms: int
    http_status: int | None
    error: str | None
    address: str | None
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one endpoint. `attempts`: all that were made. `last`: the latest attempt that has ended.

    `next_attempt_at`: None if it is pulled. `trace_id`: of the submit; None: it had none. `reason`: why it is dead.
    """

    delivery_id: int
    state: DeliveryState
    attempts: int
    next_attempt_at: datetime | None
    webhook_id: str
    kind: str
    request_id: str
    trace_id: str | None
    occurred_at: datetime
    reason: str | None
    last: Attempt | None


async def listing(
    conn: Connection,
    tenant_id: int,
    endpoint_id: UUID,
    *,
    state: str | None = None,
    kind: str | None = None,
    before: int | None = None,
    limit: int = 20,
) -> list[Delivery]:
    """The newest deliveries of an endpoint, older than the delivery `before` if given. Raises BadInput, NotFound."""
    if state is not None and state not in DELIVERY.stored():
        raise BadInput(f"state: must be one of {', '.join(DELIVERY.stored())}")
    if kind is not None and kind not in [*EventKind]:
        raise BadInput(f"event: must be one of {', '.join(EventKind)}")
    if not 1 <= limit <= MOST_LISTED:
        raise PageTooLong(limit, MOST_LISTED)
    if before is not None and not 0 < before < 2**63:
        raise BadInput("before: must be the id of a delivery")
    await endpoints.get(conn, tenant_id, endpoint_id)
    values = {"endpoint_id": endpoint_id, "state": state, "kind": kind, "before": before, "limit": limit}
    return [_delivery(row) for row in await (await conn.execute(sql.DELIVERIES.encode(), values)).fetchall()]


async def show(conn: Connection, tenant_id: int, endpoint_id: UUID, delivery_id: int) -> tuple[Delivery, list[Attempt]]:
    """One delivery of an endpoint, and its attempts in order. Raises NotFound."""
    await endpoints.get(conn, tenant_id, endpoint_id)
    values = {"endpoint_id": endpoint_id, "delivery_id": delivery_id}
    row = await (await conn.execute(sql.DELIVERY_BY_ID.encode(), values)).fetchone()
    if row is None:
        raise _no_delivery()
    attempts = await (await conn.execute(sql.ATTEMPTS.encode(), [delivery_id])).fetchall()
    return _delivery(row), [Attempt(*attempt) for attempt in attempts]


async def redeliver(conn: Connection, tenant_id: int, endpoint_id: UUID, delivery_id: int) -> None:
    """Make a delivery due now, whatever its outcome was. It gets all ten attempts again. Raises NotFound, Conflict."""
    _must_be_active(await endpoints.get(conn, tenant_id, endpoint_id))
    async with conn.transaction():
        found, _ = await show(conn, tenant_id, endpoint_id, delivery_id)
        values = {"endpoint_id": endpoint_id, "delivery_id": delivery_id}
        if (await conn.execute(sql.REDELIVER.encode(), values)).rowcount == 0:
            raise Conflict("The delivery is being sent at this moment")
        before = {"state": str(found.state), "attempts": found.attempts}
        after = {"state": str(DeliveryState.PENDING), "attempts": 0}
        target = f"{endpoint_id}/{delivery_id}"
        await endpoint_records.record(conn, tenant_id, Act.WEBHOOK_REDELIVER, target, before, after)


async def replay(
    conn: Connection,
    tenant_id: int,
    endpoint_id: UUID,
    *,
    since: datetime,
    until: datetime | None = None,
    kinds: Sequence[str] | None = None,
    only_failed: bool = True,
) -> int:
    """Send the events of a period again, at most `MOST_REPLAYED`, the oldest first. Returns how many.

    `only_failed`: only events that the endpoint has not accepted; these include events for which it had no delivery. `kinds`:
    instead of those in the subscription. `until`: None means now, by the database's clock.
    Raises BadInput, NotFound, Conflict.
    """
    if since.tzinfo is None or (until is not None and (until.tzinfo is None or since >= until)):
        raise BadInput("since: must be a time with a time zone, and before until")
    endpoint = await endpoints.get(conn, tenant_id, endpoint_id)
    _must_be_active(endpoint)
    if kinds is not None:
        validation.check_kinds(kinds, endpoint.format)
    values: dict[str, Any] = {"tenant_id": tenant_id, "endpoint_id": endpoint_id, "since": since, "until": until}
    values |= {"kinds": None if kinds is None else [*kinds], "only_failed": only_failed, "limit": MOST_REPLAYED}
    async with conn.transaction():
        count = (await conn.execute(sql.REPLAY.encode(), values)).rowcount
        if count:
            period: dict[str, Any] = {"since": clock.iso(since), "until": clock.iso(until)}
            after = period | {"only_failed": only_failed, "events": values["kinds"], "replayed": count}
            await endpoint_records.record(conn, tenant_id, Act.WEBHOOK_REPLAY, endpoint_id, after=after)
    return count


async def send_test(
    conn: Connection, tenant_id: int, account_id: str, endpoint_id: UUID, kind: str = EventKind.TEST
) -> int:
    """Send a test event to one endpoint, which becomes active when it accepts it. Returns the delivery's id.

    Raises NotFound, Conflict.
    """
    endpoint = await endpoints.get(conn, tenant_id, endpoint_id)
    if endpoint.state not in (EndpointState.PENDING, EndpointState.ACTIVE):
        raise Conflict(f"The subscription is {endpoint.state}: enable it first, because nothing is sent to it")
    async with conn.transaction():
        delivery_id = await endpoints.send_test(conn, tenant_id, account_id, endpoint_id, kind)
        after = {"delivery": delivery_id, "event": str(kind)}
        await endpoint_records.record(conn, tenant_id, Act.WEBHOOK_TEST, endpoint_id, after=after)
    return delivery_id


async def gauges(conn: Connection) -> list[tuple[str, str, float]]:
    """(name, state, value) of the gauges that an operator watches. `app.api.metrics` describes each."""
    rows = await (await conn.execute(sql.GAUGES.encode())).fetchall()
    return [(name, state, float(value)) for name, state, value in rows]


def _delivery(row: tuple[Any, ...]) -> Delivery:
    delivery_id, state, attempts, next_attempt_at, message_id, kind, data, occurred_at, reason, *last = row
    about = events.from_json(kind, data)
    return Delivery(
        delivery_id,
        DeliveryState(state),
        attempts,
        next_attempt_at,
        f"evt_{message_id.hex}",
        kind,
        about.request_id,
        trace_context.trace_id(about.traceparent),
        occurred_at,
        reason,
        None if last[0] is None else Attempt(*last),
    )


def _must_be_active(endpoint: Endpoint) -> None:
    if endpoint.state != EndpointState.ACTIVE:
        raise Conflict(f"The subscription is {endpoint.state}: enable it first, and let it accept the test event")


def _no_delivery() -> NotFound:
    return NotFound("Delivery not found")
