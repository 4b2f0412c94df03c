"""The webhooks of an account that is being deleted: first nothing more is sent, then the rows are removed."""

from app.db.pool import Connection, Database
from app.webhooks import endpoint_state
from app.webhooks import removal_sql as sql

_REASON = "its account is being deleted"
_EVENTS_AT_ONCE = 500


async def disable_all(conn: Connection, tenant_id: int) -> None:
    """Disable every endpoint of a tenant. Call inside a transaction."""
    rows = await (await conn.execute(sql.ENDPOINT_IDS, {"tenant_id": tenant_id})).fetchall()
    for (endpoint_id,) in rows:
        await endpoint_state.change(conn, tenant_id, endpoint_id, "disable", _REASON)


async def delete_all(database: Database, tenant_id: int) -> None:
    """Delete a tenant's events with their deliveries, 500 at a time, and then its endpoints."""
    async with database.relaxed() as conn:
        while (await conn.execute(sql.DELETE_EVENTS, {"tenant_id": tenant_id, "limit": _EVENTS_AT_ONCE})).rowcount:
            pass
        await conn.execute(sql.DELETE_ENDPOINTS, {"tenant_id": tenant_id})
