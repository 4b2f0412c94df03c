"""Writes `audit.signed`, by which an account has the state of its audit log outside of the database."""

from app.audit.checkpoints import Checkpoint
from app.db.pool import Connection
from app.errors import AccountUnknown
from app.events import NO_REQUEST, AuditData, EventKind
from app.tenants import service as tenants
from app.webhooks import emitter


async def signed(conn: Connection, checkpoint: Checkpoint) -> None:
    """Write the event. The installation has no subscriptions; its checkpoints are in the object store and the log."""
    if not checkpoint.account:
        return
    try:
        tenant_id = await tenants.find_tenant(conn, checkpoint.account)
    except AccountUnknown:  # it is deleted; its chain stays until it is too old
        return
    kind = EventKind.AUDIT_SIGNED
    data = AuditData(
        request_id=NO_REQUEST,
        account_id=checkpoint.account,
        row=checkpoint.seq,
        checkpoint=checkpoint.body,
        signature=checkpoint.signature.hex(),
    )
    await emitter.emit(conn, tenant_id=tenant_id, kind=kind, model="", batch_id=None, run=None, data=data)
