"""Checks of a URL before it is registered as a webhook."""

from collections.abc import Sequence
from typing import NewType

from app.db.pool import Connection, Database
from app.errors import BadInput
from app.webhooks import endpoint_sql as sql
from app.webhooks import validation
from app.webhooks.egress import EgressClient, TargetRefused

CheckedUrl = NewType("CheckedUrl", str)


async def checked_url(
    egress: EgressClient,
    url: str,
    hosts: Sequence[str] | None = None,
    *,
    where: str = "destination.url",
    owner: int | None = None,
) -> CheckedUrl:
    """Check that events may be sent to the URL. Raises `BadInput`, naming the field `where`.

    It asks DNS, so call it without a database connection. `hosts`: see `allowed_hosts`. `owner`: see `EgressClient.check`.
    """
    validation.check_length(url, where)
    try:
        await egress.check(url, hosts, owner=owner)
    except TargetRefused as refusal:
        raise BadInput(f"{where}: {refusal}") from None
    return CheckedUrl(url)


async def allowed_hosts(conn: Connection, tenant_id: int) -> list[str] | None:
    """The only hosts that webhooks of this tenant may go to. None: all that the settings allow."""
    row = await (await conn.execute(sql.HOSTS.encode(), [tenant_id])).fetchone()
    return row[0] if row else None


async def checked_for_tenant(
    database: Database, egress: EgressClient, tenant_id: int, url: str, *, where: str = "destination.url"
) -> CheckedUrl:
    """`checked_url` with the hosts that the tenant may use. Holds no connection while it asks DNS. Raises `BadInput`."""
    async with database.relaxed() as conn:
        hosts = await allowed_hosts(conn, tenant_id)
    return await checked_url(egress, url, hosts, where=where, owner=tenant_id)
