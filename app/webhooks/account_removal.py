"""What becomes of an account's webhooks when it is deleted."""

from app.db.pool import Connection, Database
from app.webhooks import operator_sql as queries
from app.webhooks import service

_REASON = "its account is being deleted"
_SLICE = 500


async def silence(conn: Connection, tenant_id: int) -> None:
    """Disable every endpoint of a tenant: nothing more is sent. Call inside a transaction."""
    rows = await (await conn.execute(queries.ENDPOINT_IDS, {"tenant_id": tenant_id})).fetchall()
    for (endpoint_id,) in rows:
        await service.move(conn, tenant_id, endpoint_id, "disable", _REASON)


async def forget(database: Database, tenant_id: int) -> None:
    """Remove a tenant's events with their deliveries, some at a time, then its endpoints."""
    async with database.relaxed() as conn:
        while (await conn.execute(queries.FORGET_EVENTS, {"tenant_id": tenant_id, "limit": _SLICE})).rowcount:
            pass
        await conn.execute(queries.FORGET_ENDPOINTS, {"tenant_id": tenant_id})
