"""The verbs of events and deliveries: an event is written with what caused it, then told at least once.

`emit` runs in the caller's transaction. Deliveries are claimed under leases, an endpoint's together and no more than it may
have at once; they are posted with no transaction open, and outcomes are written only while the claims' fences still hold.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from app.db.pool import Connection
from app.states import DeliveryState, EndpointState
from app.webhooks import endpoint_health, retry_policy, sql
from app.webhooks.endpoint_health import WELL, EndpointHealth
from app.webhooks.formats import Event
from app.webhooks.retry_policy import Answer, DeliveryVerdict

_STATES = {"deliver": DeliveryState.DELIVERED, "retry": DeliveryState.PENDING, "give_up": DeliveryState.DEAD}


@dataclass(frozen=True)
class Claim:
    """A delivery that this process may attempt until its lease ends; `attempt` counts from 1, since it was last sent anew.

    `secrets`: sealed; the endpoint's own, and while it is being changed the one before. `signing_key`: sealed, or None.
    `watched`: its endpoint was failing or is not verified, so that a success changes something. `probe`: a test event.
    `hosts`: the only ones that its tenant's webhooks may go to, None: any. `begun`: when, by the database's clock.
    """

    delivery_id: int
    fence: int
    attempt: int
    probe: bool
    endpoint_id: UUID
    tenant_id: int
    url: str
    secrets: tuple[bytes, ...]
    signing_key: bytes | None
    format: str
    watched: bool
    hosts: tuple[str, ...] | None
    begun: datetime
    event: Event


@dataclass(frozen=True)
class Care:
    """What `reap` did: deliveries made due again, and those dead after their last attempt."""

    revived: int
    dead: int


Outcome = tuple[Claim, Answer]


async def emit(
    conn: Connection,
    *,
    tenant_id: int,
    kind: str,
    model: str,
    batch_id: int | None,
    run: int | None,
    data: dict[str, Any],
    n: int = 0,
) -> None:
    """Write an event and its deliveries in one statement; a second event of the same (batch, run, kind, n) is ignored.

    `data` holds `request_id` and `account_id`, and may hold `traceparent`; `batch.failed` may add `message`,
    `internal_code`, `http_code`.
    """
    values = {"tenant_id": tenant_id, "kind": kind, "model": model, "batch_id": batch_id, "run": run, "n": n}
    await conn.execute(sql.EMIT.encode(), values | {"data": orjson.dumps(data)})


async def wanted(conn: Connection, kinds: Sequence[str]) -> set[tuple[int, str]]:
    """Which tenants have an endpoint that is told of which of these kinds."""
    rows = await (await conn.execute(sql.WANTED.encode(), [list(kinds)])).fetchall()
    return {(tenant_id, kind) for tenant_id, kind in rows}


async def hears_items(conn: Connection, tenant_id: int) -> bool:
    """Whether the tenant has an endpoint that is told of items."""
    row = await (await conn.execute(sql.HEARS_ITEMS.encode(), [tenant_id])).fetchone()
    return bool(row and row[0])


async def mend(conn: Connection) -> int:
    """Release or hold what was written while its endpoint changed its state. Returns how many deliveries moved."""
    released = await conn.execute(sql.RELEASE_STRAYS.encode())
    held = await conn.execute(sql.HOLD_STRAYS.encode())
    return released.rowcount + held.rowcount


async def emit_items(conn: Connection, *, batch_id: int, run: int, seqs: Sequence[int]) -> None:
    """Write the events of items whose results were stored in this transaction."""
    await conn.execute(sql.EMIT_ITEMS.encode(), {"batch_id": batch_id, "run": run, "seqs": list(seqs)})


async def due(conn: Connection, *, rehint_seconds: float, limit: int = 500) -> list[UUID]:
    """Endpoints with something to send that nobody was told of, or so long ago that the hint counts as lost; stamped as told."""
    row = await (await conn.execute(sql.ANY_DUE.encode())).fetchone()
    if row is None or not row[0]:
        return []
    cursor = await conn.execute(sql.DUE.encode(), {"rehint": rehint_seconds, "limit": limit})
    return [endpoint_id for (endpoint_id,) in await cursor.fetchall()]


async def unhint(conn: Connection, endpoint_ids: Sequence[UUID]) -> None:
    """Take the stamp of `due` back: the broker did not take the hints, or nobody acts on them any more."""
    await conn.execute(sql.UNHINT.encode(), [list(endpoint_ids)])


async def claim(conn: Connection, endpoint_ids: Sequence[UUID], *, most: int, lease_seconds: float) -> list[Claim]:
    """Take due deliveries, at most `most` of each endpoint and no more than it may have on its way. Call in a transaction."""
    ids = list(endpoint_ids)
    await conn.execute(sql.LOCK_ENDPOINTS.encode(), [ids])
    values = {"endpoint_ids": ids, "most": most, "lease": lease_seconds}
    return [_claim(row) for row in await (await conn.execute(sql.CLAIM.encode(), values)).fetchall()]


def _claim(row: tuple[Any, ...]) -> Claim:
    (
        delivery_id,
        fence,
        attempt,
        probe,
        endpoint_id,
        tenant_id,
        url,
        secret,
        previous,
        signing_key,
        shape,
        watched,
        hosts,
        begun,
        *happened,
    ) = row
    message_id, kind, model, data, occurred_at = happened
    event = Event(message_id, kind, model, orjson.loads(data), occurred_at)
    secrets = (secret, previous) if previous else (secret,)
    return Claim(
        delivery_id,
        fence,
        attempt,
        probe,
        endpoint_id,
        tenant_id,
        url,
        secrets,
        signing_key,
        shape,
        watched,
        hosts,
        begun,
        event,
    )


async def record(conn: Connection, outcomes: Sequence[Outcome], *, patience: timedelta) -> list[DeliveryVerdict | None]:
    """Write how claimed attempts ended, and what follows for their endpoints; None where the claim was lost.

    Call in a transaction. `patience`: an endpoint failing for so long is disabled.
    """
    jitter = [random.uniform(-1, 1) for _ in outcomes]  # noqa: S311
    verdicts = [
        retry_policy.judge(answer, claim.attempt, part) for (claim, answer), part in zip(outcomes, jitter, strict=True)
    ]
    values = {
        "ids": [claim.delivery_id for claim, _ in outcomes],
        "fences": [claim.fence for claim, _ in outcomes],
        "states": [_STATES[verdict.verb] for verdict in verdicts],
        "delays": [verdict.delay for verdict in verdicts],
        "started": [claim.begun for claim, _ in outcomes],
        "durations": [answer.duration_ms for _, answer in outcomes],
        "statuses": [answer.status for _, answer in outcomes],
        "errors": [answer.error for _, answer in outcomes],
        "bodies": [answer.body or None for _, answer in outcomes],
        "addresses": [answer.address for _, answer in outcomes],
        "reasons": [
            retry_policy.epitaph(answer, verdict) for (_, answer), verdict in zip(outcomes, verdicts, strict=True)
        ],
    }
    written = {row[0] for row in await (await conn.execute(sql.RECORD.encode(), values)).fetchall()}
    told = [
        verdict if claim.delivery_id in written else None
        for (claim, _), verdict in zip(outcomes, verdicts, strict=True)
    ]
    changed = [
        (claim, verdict)
        for (claim, _), verdict in zip(outcomes, told, strict=True)
        if verdict is not None and verdict.counts and (claim.watched or verdict.verb != "deliver" or verdict.disable)
    ]
    if changed:
        await _settle(conn, changed, patience)
    return told


async def _settle(conn: Connection, changed: Sequence[tuple[Claim, DeliveryVerdict]], patience: timedelta) -> None:
    """What the outcomes mean for the endpoints: well again, verified, left alone for a while, warned of, disabled."""
    ids = sorted({claim.endpoint_id for claim, _ in changed})
    for now, endpoint_id, tenant_id, state, *known in await (await conn.execute(sql.HEALTH.encode(), [ids])).fetchall():
        own = [(claim, verdict) for claim, verdict in changed if claim.endpoint_id == endpoint_id]
        found, reason = EndpointHealth(*known), ""
        for claim, verdict in own:
            reason = reason or verdict.disable or ""
            if verdict.verb == "deliver":
                found = WELL
                if claim.probe and state == EndpointState.PENDING:
                    await move(conn, tenant_id, endpoint_id, "verify")
                continue
            found, share = endpoint_health.after_failure(found, claim.begun, now, patience)
            if share is not None and share >= 1:
                reason = reason or _GIVEN_UP.format(found.failing_since)
            elif share is not None:
                message = f"{share:.0%} of the time after which it is disabled is over"
                await _tell_owner(conn, claim, "endpoint.failing", message)
        if reason and state != EndpointState.DISABLED:
            await move(conn, tenant_id, endpoint_id, "disable", reason)
            await _tell_owner(conn, own[0][0], "endpoint.disabled", reason)
        elif found != EndpointHealth(*known):
            values = {"failures": found.failures, "failing_since": found.failing_since, "open_until": found.open_until}
            values |= {"warned": found.warned, "endpoint_id": endpoint_id}
            await conn.execute(sql.SET_HEALTH.encode(), values)


_LOST = f"the notifier that sent it was lost, in the last of {retry_policy.ATTEMPTS} attempts"
_GIVEN_UP = "every attempt failed since {:%Y-%m-%d %H:%M:%S} UTC"


async def _tell_owner(conn: Connection, claim: Claim, kind: str, message: str) -> None:
    """An event of the endpoint itself, for the other endpoints of its tenant."""
    data = {"request_id": claim.endpoint_id.hex, "account_id": claim.event.data["account_id"], "message": message}
    await emit(conn, tenant_id=claim.tenant_id, kind=kind, model="", batch_id=None, run=None, data=data)


async def move(conn: Connection, tenant_id: int, endpoint_id: UUID, verb: str, reason: str | None = None) -> bool:
    """Move an endpoint by `verify`, `pause`, `disable` or `enable`, and with it what waits for it. False: not from its state."""
    values = {"tenant_id": tenant_id, "endpoint_id": endpoint_id, "reason": reason}
    if await (await conn.execute(sql.move_endpoint(verb).encode(), values)).fetchone() is None:
        return False
    if verb == "verify":
        await conn.execute(sql.RELEASE.encode(), {"endpoint_id": endpoint_id})
    elif verb != "enable":
        await conn.execute(sql.HOLD.encode(), {"endpoint_id": endpoint_id})
    return True


async def reap(conn: Connection, *, limit: int = 1000) -> Care:
    """End expired leases: their senders died or hang. The attempt counts, so a delivery that kills its sender ends."""
    values = {"attempts": retry_policy.ATTEMPTS, "limit": limit, "reason": _LOST}
    row = await (await conn.execute(sql.REAP.encode(), values)).fetchone()
    return Care(*row) if row else Care(0, 0)
