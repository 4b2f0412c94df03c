"""Checks of a URL before it is registered as a webhook."""

from collections.abc import Callable, Sequence
from typing import NewType
from urllib.parse import urlsplit

from app.audit.acts import Act
from app.audit.grouped import GroupedLog
from app.db.pool import Connection, Database
from app.errors import BadInput
from app.tenants.service import Tenant
from app.webhooks import endpoint_sql as sql
from app.webhooks import validation
from app.webhooks.egress import EgressClient, HostNotListed, TargetRefused

CheckedUrl = NewType("CheckedUrl", str)
Unresolved = Callable[[str], None]  # is told of a host whose name does not resolve


def warning(host: str) -> str:
    """What the owner of a webhook to a host that does not resolve should know."""
    return f"{ascii(host)[1:-1]} does not resolve; nothing can be sent to it until it does"


async def checked_url(
    egress: EgressClient,
    url: str,
    hosts: Sequence[str] | None = None,
    *,
    where: str = "destination.url",
    owner: int | None = None,
    unresolved: Unresolved | None = None,
) -> CheckedUrl:
    """Check that events may be sent to the URL. Raises `BadInput`, naming the field `where`.

    It asks DNS, so call it without a database connection. `hosts`: see `allowed_hosts`. `owner`: see `EgressClient.check`.
    `unresolved`: see above.
    """
    validation.check_length(url, where)
    try:
        resolves = await egress.check(url, hosts, owner=owner)
    except TargetRefused as refusal:
        raise BadInput(f"{where}: {refusal}", param=where) from refusal
    if not resolves and unresolved is not None:
        unresolved(urlsplit(url).hostname or "")
    return CheckedUrl(url)


async def allowed_hosts(conn: Connection, tenant_id: int) -> list[str] | None:
    """The only hosts that webhooks of this tenant may go to. None: all that the settings allow."""
    row = await (await conn.execute(sql.HOSTS.encode(), [tenant_id])).fetchone()
    return row[0] if row else None


async def checked_for_tenant(
    database: Database,
    egress: EgressClient,
    audit: GroupedLog,
    tenant: Tenant,
    url: str,
    *,
    where: str = "destination.url",
    unresolved: Unresolved | None = None,
) -> CheckedUrl:
    """`checked_url` with the hosts that the tenant may use. Holds no connection while it asks DNS. Raises `BadInput`.

    What a list of hosts refuses is noted in `audit`.
    """
    async with database.relaxed() as conn:
        hosts = await allowed_hosts(conn, tenant.tenant_id)
    try:
        return await checked_url(egress, url, hosts, where=where, owner=tenant.tenant_id, unresolved=unresolved)
    except BadInput as error:
        if isinstance(error.__cause__, HostNotListed):
            refusal = error.__cause__.refusal
            audit.add(Act.POLICY_DENIED, refusal.by, tenant.account_id, refusal.message)
        raise
