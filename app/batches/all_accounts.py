"""The batches of every account, newest first, for the operator of the installation. Bodies are not among it."""

from collections.abc import Sequence
from uuid import UUID

from app.db.pool import Database
from app.errors import PlaceUnknown
from app.queue import listing
from app.queue.listing import Filters, ListPosition
from app.tenants import service as tenants
from app.tenants.service import Tenant


async def page(
    database: Database, filters: Filters, accounts: Sequence[str] = (), *, after: UUID | None = None, limit: int
) -> tuple[list[tuple[Tenant, ListPosition]], bool]:
    """The newest `limit` batches of these accounts after `after`, and whether there are more. No `accounts`: of all.

    Batches that were refused because of their file are not among them. Raises AccountUnknown, PlaceUnknown.
    """
    async with database.relaxed() as conn:
        known = {tenant.tenant_id: tenant for tenant in await tenants.every(conn)}
        chosen = [await tenants.find_tenant(conn, account) for account in accounts] or list(known)
        behind = None
        if after is not None:
            found = [at for each in chosen if (at := await listing.created_at(conn, each, after)) is not None]
            if not found:
                raise PlaceUnknown(after)
            behind = ListPosition(found[0], after)
        rows = await listing.page_of_accounts(conn, chosen, filters, after=behind, limit=limit + 1)
    shown = [(known[tenant_id], position) for tenant_id, position in rows if tenant_id in known]
    return shown[:limit], len(rows) > limit
