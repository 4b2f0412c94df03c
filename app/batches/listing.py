"""All batches of an account, newest first: those that were queued, and those that were refused because of their file."""

import heapq
from dataclasses import replace
from uuid import UUID

from app.db.pool import Connection, Database
from app.errors import PlaceUnknown
from app.files import service as files
from app.queue import listing
from app.queue.listing import Filters, ListPosition
from app.tenants.service import Tenant

REFUSED = "refused"
WORDS = (*listing.STATE_NAMES, REFUSED)


async def page(
    database: Database, tenant: Tenant, filters: Filters, *, after: UUID | None = None, limit: int
) -> tuple[list[ListPosition], bool]:
    """The newest `limit` batches after `after`, and whether there are more. Raises PlaceUnknown."""
    async with database.relaxed() as conn:
        behind = await _position(conn, tenant.tenant_id, after) if after else None
        queued, refused = await _queued(conn, tenant, filters, behind, limit + 1), []
        only_queued = filters.models or filters.tags or filters.waits or filters.errors or filters.name
        if not only_queued and (not filters.states or REFUSED in filters.states):
            refused = await _refused(conn, tenant, filters, behind, limit + 1)
    positions = [*heapq.merge(queued, refused, reverse=True)]
    return positions[:limit], len(positions) > limit


async def _queued(
    conn: Connection, tenant: Tenant, filters: Filters, after: ListPosition | None, limit: int
) -> list[ListPosition]:
    states = [word for word in filters.states if word != REFUSED]
    if filters.states and not states:
        return []
    return await listing.page(conn, tenant.tenant_id, replace(filters, states=states), after=after, limit=limit)


async def _refused(
    conn: Connection, tenant: Tenant, filters: Filters, after: ListPosition | None, limit: int
) -> list[ListPosition]:
    rows = await files.refused(
        conn,
        tenant.tenant_id,
        metadata=filters.metadata,
        created_after=filters.created_after,
        created_before=filters.created_before,
        after=after,
        limit=limit,
    )
    return [ListPosition(created_at, request_id) for created_at, request_id in rows]


async def _position(conn: Connection, tenant_id: int, request_id: UUID) -> ListPosition:
    """The position of a batch, which stays when its contents are deleted. Raises PlaceUnknown."""
    created_at = await listing.created_at(conn, tenant_id, request_id) or await files.refused_at(
        conn, tenant_id, request_id
    )
    if created_at is None:
        raise PlaceUnknown(request_id)
    return ListPosition(created_at, request_id)
