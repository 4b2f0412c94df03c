"""Corrects the cached counts of the fair order, should they differ from the chunks. A verb of the steward."""

from dataclasses import dataclass

from app.db.pool import Connection
from app.queue import fair_order_sql


@dataclass(frozen=True, slots=True)
class Drift:
    """The correction of a tenant's cached counts in a pool: what was added to each."""

    pool_id: int
    tenant_id: int
    ready: int
    inflight_tokens: int


async def recompute(conn: Connection) -> list[Drift]:
    """Recompute the cached counts of the fair order from the chunks. Returns the corrections.

    All claims wait for it, so that it is one message, and in autocommit mode one transaction.
    """
    async with conn.pipeline():
        await conn.execute(fair_order_sql.LOCK_CACHES)
        corrected = await conn.execute(fair_order_sql.RECOMPUTE)
    return [Drift(*row) for row in await corrected.fetchall()]
