"""Writes `quota.reached`, at most once an hour for each account and quota.

The refusal rolls back the transaction that would have stored too much, so the event has one of its own right after it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from app.admission import quota_sql as sql
from app.causes import cause
from app.db.pool import Connection, Database
from app.db.transient_errors import TRANSIENT
from app.errors import QuotaExceeded
from app.events import NO_REQUEST, EventKind, QuotaData
from app.tenants.service import Tenant
from app.webhooks import emitter

_log = structlog.get_logger("quota")


@asynccontextmanager
async def told(database: Database, tenant: Tenant) -> AsyncIterator[None]:
    """Put it around a transaction that checks quotas: if one refuses the block, the account is told, and the error goes on."""
    try:
        yield
    except QuotaExceeded as refusal:
        try:
            async with database.transaction() as conn:
                await _reached(conn, tenant, refusal)
        except TRANSIENT as error:  # the next refusal tells it
            _log.warning("quota.not_told", quota=refusal.quota, error=cause(error))
        raise


async def _reached(conn: Connection, tenant: Tenant, refusal: QuotaExceeded) -> None:
    values = {"tenant_id": tenant.tenant_id, "quota": refusal.quota}
    if await (await conn.execute(sql.NOTE_REACHED, values)).fetchone() is None:
        return
    data = QuotaData(request_id=NO_REQUEST, account_id=tenant.account_id, quota=refusal.quota, message=str(refusal))
    kind = EventKind.QUOTA_REACHED
    await emitter.emit(conn, tenant_id=tenant.tenant_id, kind=kind, model="", batch_id=None, run=None, data=data)
