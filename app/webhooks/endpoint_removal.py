"""Endpoints that were deleted are removed in steps, so that nobody who writes an event waits for one."""

from app.db.pool import Connection
from app.webhooks import operator_sql as queries


async def step(conn: Connection, *, limit: int = 1000) -> int:
    """Remove at most `limit` deliveries of deleted endpoints, and the endpoints that have none left. Returns how many went."""
    deliveries = await conn.execute(queries.FORGET_DELIVERIES.encode(), {"limit": limit})
    return deliveries.rowcount + (await conn.execute(queries.REMOVE_ENDPOINTS.encode())).rowcount
