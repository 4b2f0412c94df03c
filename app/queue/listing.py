"""List an account's batches: filtered, newest first, one page at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from app.db import name_prefix
from app.db.pool import Connection
from app.queue import listing_sql as queries
from app.states import BatchState

# Callers see an open batch as queued or running, and may filter by either.
_STARTED = {"queued": False, "running": True}
STATE_NAMES = (*_STARTED, *BatchState)


class ListPosition(NamedTuple):
    """A batch's place in the order of the listing."""

    created_at: datetime
    request_id: UUID


@dataclass(frozen=True, slots=True)
class Filters:
    """A batch matches if it has one of the `states` (`STATE_NAMES`), one of the `models`, and all `tags` and `metadata`.

    `waits`: it waits for one of these codes of `why`, or is `running`. `errors`: items of its latest run failed with one of these
    classes. `name`: its name begins with this. An empty filter matches everything. The batch was created at `created_after` or
    later, and before `created_before`.
    """

    states: Sequence[str] = ()
    models: Sequence[str] = ()
    waits: Sequence[str] = ()
    errors: Sequence[str] = ()
    name: str | None = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    created_after: datetime | None = None
    created_before: datetime | None = None


async def page(
    conn: Connection, tenant_id: int, filters: Filters, *, after: ListPosition | None = None, limit: int
) -> list[ListPosition]:
    """The newest `limit` batches of the tenant after the position `after`, without single requests."""
    given, values = _given(filters, after, limit)
    rows = await (await conn.execute(queries.page(given).encode(), values | {"tenant_id": tenant_id})).fetchall()
    return [ListPosition(created_at, request_id) for request_id, created_at, _ in rows]


async def page_of_accounts(
    conn: Connection, tenant_ids: Sequence[int], filters: Filters, *, after: ListPosition | None = None, limit: int
) -> list[tuple[int, ListPosition]]:
    """The newest `limit` batches of these tenants, each with its tenant, as `page`."""
    given, values = _given(filters, after, limit)
    values |= {"tenant_ids": list(tenant_ids)}
    rows = await (await conn.execute(queries.page_of_accounts(given).encode(), values)).fetchall()
    return [(tenant_id, ListPosition(created_at, request_id)) for tenant_id, request_id, created_at in rows]


def _given(filters: Filters, after: ListPosition | None, limit: int) -> tuple[set[str], dict[str, Any]]:
    """The names of the filters that filter, and the values of all."""
    values: dict[str, Any] = {
        "models": list(dict.fromkeys(filters.models)),
        "waits": list(dict.fromkeys(filters.waits)),
        "errors": list(dict.fromkeys(filters.errors)),
        "name": filters.name,
        "tags": list(filters.tags),
        "metadata": Jsonb(dict(filters.metadata)) if filters.metadata else None,
        "created_after": filters.created_after,
        "created_before": filters.created_before,
        "after": after and after.request_id,
        # The index by model has the state before the time, so that a filter by model needs all states.
        **_states(filters.states or (tuple(BatchState) if filters.models else ())),
    }
    given = {name for name, value in values.items() if value}
    values |= {"limit": limit, "after_at": after and after.created_at}
    values["name_end"] = name_prefix.end(filters.name or "")
    return given, values


async def created_at(conn: Connection, tenant_id: int, request_id: UUID) -> datetime | None:
    """When a batch was created. None: the tenant has no such batch."""
    values = {"tenant_id": tenant_id, "request_id": request_id}
    row = await (await conn.execute(queries.CREATED_AT, values)).fetchone()
    return None if row is None else row[0]


def _states(names: Sequence[str]) -> dict[str, list[Any]]:
    """The stored states, each with whether the batch must have started (None: either)."""
    distinct = [name for name in dict.fromkeys(names) if name not in _STARTED or BatchState.OPEN not in names]
    return {
        "states": [str(BatchState.OPEN) if name in _STARTED else name for name in distinct],
        "started": [_STARTED.get(name) for name in distinct],
    }
