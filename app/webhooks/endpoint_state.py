"""Changes of an endpoint's state, by its owner or by its health, and what they mean for its deliveries."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from app import clock
from app.changes import service as changes
from app.changes.kinds import ChangeKind
from app.db.pool import Connection
from app.events import EndpointData, EventKind
from app.quantities import moment
from app.states import EndpointState
from app.webhooks import emitter, endpoint_health
from app.webhooks import endpoint_sql as sql
from app.webhooks.claims import Claim
from app.webhooks.endpoint_health import HEALTHY, EndpointHealth
from app.webhooks.response_policy import DeliveryVerdict

Outcomes = Sequence[tuple[Claim, DeliveryVerdict]]
_GIVEN_UP = "every attempt failed since {}"


async def change(conn: Connection, tenant_id: int, endpoint_id: UUID, verb: str, reason: str | None = None) -> bool:
    """Verify, pause, disable or enable an endpoint, and hold or release its deliveries. False: its state does not allow it."""
    values = {"tenant_id": tenant_id, "endpoint_id": endpoint_id, "reason": reason}
    if await (await conn.execute(sql.transition(verb).encode(), values)).fetchone() is None:
        return False
    if verb == "verify":
        await conn.execute(sql.RELEASE.encode(), {"endpoint_id": endpoint_id})
    elif verb != "enable":
        await conn.execute(sql.HOLD.encode(), {"endpoint_id": endpoint_id})
    return True


async def correct_held(conn: Connection) -> int:
    """Release or hold deliveries that were written while the state of their endpoint changed. Returns how many."""
    released = await conn.execute(sql.RELEASE_MISSED.encode())
    held = await conn.execute(sql.HOLD_MISSED.encode())
    return released.rowcount + held.rowcount


async def apply_outcomes(conn: Connection, outcomes: Outcomes, patience: timedelta) -> None:
    """Update the health of the endpoints, verify and disable them, and write their `endpoint.*` events.

    `patience`: an endpoint that has been failing for so long is disabled. Call in a transaction.
    """
    ids = sorted({claim.endpoint_id for claim, _ in outcomes})
    for row in await (await conn.execute(sql.LOCK_HEALTH.encode(), [ids])).fetchall():
        own = [(claim, verdict) for claim, verdict in outcomes if claim.endpoint_id == row[1]]
        await _apply(conn, own, row, patience)


async def _apply(conn: Connection, outcomes: Outcomes, row: tuple[Any, ...], patience: timedelta) -> None:
    """Apply the outcomes of one endpoint, whose locked row this is."""
    now, endpoint_id, tenant_id, _, state, *stored = row
    before = health = EndpointHealth(*stored)
    reason = ""
    for claim, verdict in outcomes:
        reason = reason or verdict.disable or ""
        if verdict.verb == "deliver":
            health = HEALTHY
            if claim.probe and state == EndpointState.PENDING:
                await change(conn, tenant_id, endpoint_id, "verify")
            continue
        health, share = endpoint_health.after_failure(health, claim.begun, now, patience)
        if share is not None and share >= 1:
            reason = reason or _GIVEN_UP.format(moment(health.failing_since or now))
        elif share is not None:
            message = f"{share:.0%} of the time after which it is disabled is over"
            await _notify_owner(conn, claim, EventKind.ENDPOINT_FAILING, message)
    if reason and state != EndpointState.DISABLED:
        await change(conn, tenant_id, endpoint_id, "disable", reason)
        await _notify_owner(conn, outcomes[0][0], EventKind.ENDPOINT_DISABLED, reason)
    elif health != before:
        values = {"failures": health.failures, "failing_since": health.failing_since, "open_until": health.open_until}
        values |= {"warned": health.warned, "endpoint_id": endpoint_id}
        await conn.execute(sql.SET_HEALTH.encode(), values)
    await _note(conn, row, (before, health), outcomes, reason)


async def _note(
    conn: Connection,
    row: tuple[Any, ...],
    healths: tuple[EndpointHealth, EndpointHealth],
    outcomes: Outcomes,
    reason: str,
) -> None:
    """Write what has changed for the installation: the breaker has opened for the first time or closed, or it was disabled."""
    _, endpoint_id, tenant_id, name, state, *_ = row
    before, health = healths
    last, _ = outcomes[-1]
    facts: dict[str, object] = {"endpoint": endpoint_id.hex, "delivery": last.delivery_id, "event": last.event.kind}
    if last.event.kind.startswith(("batch.", "item.")):
        facts["batch"] = last.event.data.request_id
    facts |= {"trace": last.event.data.traceparent} if getattr(last.event.data, "traceparent", None) else {}
    if reason and state != EndpointState.DISABLED:
        await changes.record(conn, ChangeKind.ENDPOINT_DISABLED, name, facts | {"reason": reason}, tenant_id=tenant_id)
    elif health.open_until and not before.open_until:
        until = {"failures": health.failures, "until": clock.iso(health.open_until)}
        await changes.record(conn, ChangeKind.BREAKER_OPENED, name, facts | until, tenant_id=tenant_id)
    elif before.open_until and not health.open_until:
        await changes.record(conn, ChangeKind.BREAKER_CLOSED, name, facts, tenant_id=tenant_id)


async def _notify_owner(conn: Connection, claim: Claim, kind: EventKind, message: str) -> None:
    """Write an event about the endpoint. The tenant's other endpoints can subscribe to it."""
    account_id = claim.event.data.account_id
    data = EndpointData(request_id=claim.endpoint_id.hex, account_id=account_id, message=message)
    await emitter.emit(conn, tenant_id=claim.tenant_id, kind=kind, model="", batch_id=None, run=None, data=data)
