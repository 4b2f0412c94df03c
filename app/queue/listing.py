"""Which batches an account has: filtered, newest first, a page at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from app.db.pool import Connection
from app.queue import listing_sql as queries
from app.states import BatchState

# An open batch is told as queued or running; either may be asked for.
_STARTED = {"queued": False, "running": True}
WORDS = (*_STARTED, *BatchState)


class ListPosition(NamedTuple):
    """A batch's place in the order of all."""

    created_at: datetime
    request_id: UUID


@dataclass(frozen=True, slots=True)
class Filters:
    """What is wanted: any of `states` (`WORDS`) and of `models`, all of `tags` and `metadata`; empty: whatever it is.

    Made at `created_after` or later, and before `created_before`.
    """

    states: Sequence[str] = ()
    models: Sequence[str] = ()
    tags: Sequence[str] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    created_after: datetime | None = None
    created_before: datetime | None = None


async def page(
    conn: Connection, tenant_id: int, wanted: Filters, *, after: ListPosition | None = None, limit: int
) -> list[ListPosition]:
    """The newest `limit` batches of the tenant behind the place `after`. Single requests are none."""
    values: dict[str, Any] = {
        "models": list(dict.fromkeys(wanted.models)),
        "tags": list(wanted.tags),
        "metadata": Jsonb(dict(wanted.metadata)) if wanted.metadata else None,
        "created_after": wanted.created_after,
        "created_before": wanted.created_before,
        "after": after and after.request_id,
        **_states(
            wanted.states or (tuple(BatchState) if wanted.models else ())
        ),  # the index by model goes by state, too
    }
    given = {name for name, value in values.items() if value}
    values |= {"tenant_id": tenant_id, "limit": limit, "after_at": after and after.created_at}
    rows = await (await conn.execute(queries.page(given).encode(), values)).fetchall()
    return [ListPosition(created_at, request_id) for request_id, created_at in rows]


async def created_at(conn: Connection, tenant_id: int, request_id: UUID) -> datetime | None:
    """When a batch was made; None: the tenant has no such batch."""
    values = {"tenant_id": tenant_id, "request_id": request_id}
    row = await (await conn.execute(queries.CREATED_AT, values)).fetchone()
    return None if row is None else row[0]


def _states(words: Sequence[str]) -> dict[str, list[Any]]:
    """The stored states, each with whether such a batch must have started (None: it may)."""
    apart = [word for word in dict.fromkeys(words) if word not in _STARTED or BatchState.OPEN not in words]
    return {
        "states": [str(BatchState.OPEN) if word in _STARTED else word for word in apart],
        "started": [_STARTED.get(word) for word in apart],
    }
