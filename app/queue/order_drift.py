"""Corrects the cached counts of the fair order, should they differ from the chunks. A verb of the steward."""

from dataclasses import dataclass

from psycopg.errors import LockNotAvailable

from app.db.pool import Connection
from app.queue import fair_order_sql


@dataclass(frozen=True, slots=True)
class Drift:
    """The correction of a tenant's cached counts in a pool: what was added to each."""

    pool_id: int
    tenant_id: int
    ready: int
    inflight_tokens: int


@dataclass(frozen=True, slots=True)
class Recount:
    """What a recount corrected, and the accounts that it left because others hold them: (pool, tenant)."""

    drifts: list[Drift]
    left: list[tuple[int, int]]


async def recompute(conn: Connection) -> Recount:
    """Recompute the cached counts of the fair order from the chunks. Use a connection in autocommit mode.

    Claims wait for it, so that it is one message and waits for nobody while it holds an account: first all that are free, then
    those that were not, one at a time and for a moment only.
    """
    drifts, held = await _recompute(conn, fair_order_sql.LOCK_FREE_CACHES)
    left = []
    for pool_id, tenant_id in held:
        try:
            drifts += (await _recompute(conn, fair_order_sql.LOCK_CACHE, pool_id=pool_id, tenant_id=tenant_id))[0]
        except LockNotAvailable:
            left.append((pool_id, tenant_id))
    return Recount(drifts, left)


async def _recompute(conn: Connection, lock: str, **account: int) -> tuple[list[Drift], list[tuple[int, int]]]:
    """Recompute what `lock` locks, in one transaction. Returns the corrections, and the accounts that it has not locked."""
    async with conn.pipeline():
        await conn.execute(lock, account or None)
        corrected = await conn.execute(fair_order_sql.RECOMPUTE)
        others = await conn.execute(fair_order_sql.NOT_LOCKED)
    return [Drift(*row) for row in await corrected.fetchall()], [(row[0], row[1]) for row in await others.fetchall()]
