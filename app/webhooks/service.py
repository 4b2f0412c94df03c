"""The verbs of events and deliveries: an event is written with what caused it, then told at least once.

`emit` runs in the caller's transaction. A delivery is claimed under a lease, posted with no transaction open, and its
outcome is written only while the claim's fence still holds.
"""

import random
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from app.db.pool import Connection
from app.webhooks import queries, schedule
from app.webhooks.formats import Event
from app.webhooks.schedule import Answer, Verdict


@dataclass(frozen=True)
class Claim:
    """A delivery that this process may attempt until its lease ends; `attempt` counts from 1."""

    delivery_id: int
    fence: int
    attempt: int
    endpoint_id: UUID
    url: str
    secret: bytes
    format: str
    event: Event


@dataclass(frozen=True)
class Care:
    """What `reap` did: deliveries made due again, and those dead after their last attempt."""

    revived: int
    dead: int


async def emit(
    conn: Connection, *, tenant_id: int, kind: str, model: str, batch_id: int, run: int, data: dict[str, Any]
) -> None:
    """Write an event and its deliveries in one statement; a second event of the same (batch, run, kind) is ignored.

    `data` holds `request_id` and `account_id`; `batch.failed` may add `message`, `internal_code`, `http_code`.
    """
    values = {"tenant_id": tenant_id, "kind": kind, "model": model, "batch_id": batch_id, "run": run}
    await conn.execute(queries.EMIT.encode(), values | {"data": orjson.dumps(data)})


async def claim(conn: Connection, delivery_id: int, *, lease_seconds: float) -> Claim | None:
    """Take a due delivery for one attempt; None when it is not due, taken, done, or its endpoint is disabled."""
    cursor = await conn.execute(queries.CLAIM.encode(), {"delivery_id": delivery_id, "lease": lease_seconds})
    row = await cursor.fetchone()
    if row is None:
        return None
    delivery_id, fence, attempt, endpoint_id, url, secret, shape, *happened = row
    message_id, kind, model, data, occurred_at = happened
    event = Event(message_id, kind, model, orjson.loads(data), occurred_at)
    return Claim(delivery_id, fence, attempt, endpoint_id, url, secret, shape, event)


async def record_attempt(conn: Connection, claim: Claim, answer: Answer, *, disable_days: float) -> Verdict | None:
    """Write how a claimed attempt ended, and its consequences; None if the claim was lost: nothing is written.

    Several statements: call it in a transaction.
    """
    verdict = schedule.judge(answer, claim.attempt, random.uniform(-1, 1))  # noqa: S311  (jitter)
    values = {
        "delivery_id": claim.delivery_id,
        "fence": claim.fence,
        "delay": verdict.delay,
        "started_at": answer.started_at,
        "duration_ms": answer.duration_ms,
        "status": answer.status,
        "error": answer.error,
        "body": answer.body or None,
    }
    cursor = await conn.execute(queries.RECORD[verdict.verb].encode(), values)
    if cursor.rowcount == 0:
        return None
    if verdict.verb == "deliver":
        await conn.execute(queries.ENDPOINT_WORKS, [claim.endpoint_id])
    elif verdict.disable:
        await conn.execute(queries.DISABLE_ENDPOINT, {"endpoint_id": claim.endpoint_id, "reason": verdict.disable})
    else:
        patience = disable_days * 24 * 3600
        await conn.execute(queries.ENDPOINT_FAILS, {"endpoint_id": claim.endpoint_id, "patience": patience})
    return verdict


async def reap(conn: Connection, *, limit: int = 1000) -> Care:
    """End expired leases: their senders died or hang. The attempt counts, so a delivery that kills its sender ends."""
    values = {"attempts": schedule.ATTEMPTS, "limit": limit}
    revived = await conn.execute(queries.REAP.encode(), values)
    dead = await conn.execute(queries.BURY.encode(), values)
    return Care(revived.rowcount, dead.rowcount)


async def overdue(conn: Connection, *, rehint_seconds: float, limit: int = 500) -> list[int]:
    """Due deliveries that nobody was told of, or so long ago that the hint counts as lost; stamped as told now."""
    cursor = await conn.execute(queries.OVERDUE.encode(), {"rehint": rehint_seconds, "limit": limit})
    return [delivery_id for (delivery_id,) in await cursor.fetchall()]


async def unhint(conn: Connection, delivery_ids: list[int]) -> None:
    """Take the stamp of `overdue` back: the broker did not take the hints."""
    await conn.execute(queries.UNHINT.encode(), [delivery_ids])
