"""The operator's verbs on the policy: apply, roll back. A new version writes `policy.applied` in its transaction.

The policy is the installation's, so the event goes to every account that subscribes to it.
"""

from app.db.pool import Connection
from app.engines.catalogue import Catalogue
from app.events import NO_REQUEST, EventKind, PolicyData
from app.policy import service
from app.policy.service import PolicyVersion
from app.tenants import service as tenants
from app.webhooks import emitter


async def apply(conn: Connection, text: str, models: Catalogue, by: str) -> tuple[PolicyVersion, bool]:
    """`policy.service.apply`, with its events."""
    return await _told(conn, *await service.apply(conn, text, models, by))


async def roll_back(conn: Connection, policy_id: int | None, models: Catalogue, by: str) -> tuple[PolicyVersion, bool]:
    """`policy.service.roll_back`, with its events."""
    return await _told(conn, *await service.roll_back(conn, policy_id, models, by))


async def _told(conn: Connection, version: PolicyVersion, new: bool) -> tuple[PolicyVersion, bool]:
    kind = EventKind.POLICY_APPLIED
    subscribed = await emitter.subscribed(conn, [kind]) if new else set()
    again = f" It is version {version.restores} again." if version.restores else ""
    for tenant_id, _ in sorted(subscribed):
        data = PolicyData(
            request_id=NO_REQUEST,
            account_id=await tenants.account_id_of(conn, tenant_id),
            version=version.policy_id,
            message=f"Version {version.policy_id} of the policy is in force.{again}",
        )
        await emitter.emit(conn, tenant_id=tenant_id, kind=kind, model="", batch_id=None, run=None, data=data)
    return version, new
