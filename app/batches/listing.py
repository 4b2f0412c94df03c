"""Every batch of an account in one order, newest first: those that were taken, and those that were refused for their file."""

import heapq
from dataclasses import replace
from uuid import UUID

from app.db.pool import Connection, Database
from app.errors import BadInput
from app.files import service as files
from app.queue import listing
from app.queue.listing import Filters, ListPosition
from app.tenants.service import Tenant

REFUSED = "refused"
WORDS = (*listing.STATE_NAMES, REFUSED)


async def page(
    database: Database, tenant: Tenant, wanted: Filters, *, after: UUID | None = None, limit: int
) -> tuple[list[ListPosition], bool]:
    """The newest `limit` batches behind `after`, and whether there are more. Raises BadInput."""
    async with database.relaxed() as conn:
        behind = await _place(conn, tenant.tenant_id, after) if after else None
        taken, refused = await _taken(conn, tenant, wanted, behind, limit + 1), []
        if not wanted.models and not wanted.tags and (not wanted.states or REFUSED in wanted.states):
            refused = await _refused(conn, tenant, wanted, behind, limit + 1)
    found = [*heapq.merge(taken, refused, reverse=True)]
    return found[:limit], len(found) > limit


async def _taken(
    conn: Connection, tenant: Tenant, wanted: Filters, after: ListPosition | None, limit: int
) -> list[ListPosition]:
    states = [word for word in wanted.states if word != REFUSED]
    if wanted.states and not states:
        return []
    return await listing.page(conn, tenant.tenant_id, replace(wanted, states=states), after=after, limit=limit)


async def _refused(
    conn: Connection, tenant: Tenant, wanted: Filters, after: ListPosition | None, limit: int
) -> list[ListPosition]:
    rows = await files.refused(
        conn,
        tenant.tenant_id,
        metadata=wanted.metadata,
        created_after=wanted.created_after,
        created_before=wanted.created_before,
        after=after,
        limit=limit,
    )
    return [ListPosition(created_at, request_id) for created_at, request_id in rows]


async def _place(conn: Connection, tenant_id: int, request_id: UUID) -> ListPosition:
    """Raises BadInput for a batch that is not there."""
    made = await listing.created_at(conn, tenant_id, request_id) or await files.refused_at(conn, tenant_id, request_id)
    if made is None:
        raise BadInput("after: no such batch in this account; take the cursor of the page before", param="after")
    return ListPosition(made, request_id)
