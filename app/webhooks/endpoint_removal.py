"""Removes deleted endpoints in small steps, so that no transaction that writes an event waits for a removal."""

from app.db.pool import Connection
from app.webhooks import removal_sql as sql


async def step(conn: Connection, *, limit: int = 1000) -> int:
    """Delete at most `limit` deliveries of deleted endpoints, then the endpoints that have none left. Returns how many rows."""
    deliveries = await conn.execute(sql.DELETE_DELIVERIES.encode(), {"limit": limit})
    return deliveries.rowcount + (await conn.execute(sql.DELETE_CLOSED_ENDPOINTS.encode())).rowcount
