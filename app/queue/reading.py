"""Reads: where a batch stands, and its results page by page."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from app.db.pool import Database
from app.queue import queries
from app.queue.estimate import EngineView, Estimate, Outlook, estimate
from app.states import BatchState, EngineState
from app.storage.store import Store

_LARGE_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Status:
    """A batch with its live counts. `started`: some item has been handed to an engine."""

    batch_id: int
    request_id: UUID
    model: str
    state: BatchState
    run: int
    total: int
    created_at: datetime
    finalized_at: datetime | None
    ok: int
    failed: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    started: bool
    deadline: datetime
    expires_at: datetime | None

    @property
    def unfinished(self) -> int:
        """Items without a result; once the batch is final, those that were cancelled or have expired."""
        return self.total - self.ok - self.failed


@dataclass(frozen=True, slots=True)
class ItemResult:
    """One line of a batch's results; `body` is None while the item has none."""

    seq: int
    reference: str | None
    wants_json: bool
    ok: bool
    body: bytes | None
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    yields: int | None
    stored: bool = False


async def status(database: Database, tenant_id: int, request_id: UUID) -> Status | None:
    """The batch of this tenant, or None: unknown and foreign ids are the same."""
    async with database.relaxed() as conn:
        parameters = {"tenant_id": tenant_id, "request_id": request_id}
        row = await (await conn.execute(queries.STATUS, parameters)).fetchone()
    return None if row is None else _status(row)


async def latest(database: Database, tenant_id: int, limit: int) -> list[Status]:
    """The newest batches of the tenant, newest first."""
    async with database.relaxed() as conn:
        rows = await (await conn.execute(queries.LATEST, {"tenant_id": tenant_id, "limit": limit})).fetchall()
    return [_status(row) for row in rows]


def _status(row: Sequence[Any]) -> Status:
    found = Status(*row)
    return replace(found, state=BatchState(found.state), started=found.started or found.ok + found.failed > 0)


async def estimated(database: Database, status: Status) -> Estimate | None:
    """When the batch will be done; None for a final one, and in an open one's last moments."""
    if status.finalized_at is not None:
        return None
    async with database.relaxed() as conn:
        row = await (await conn.execute(queries.OUTLOOK, {"batch_id": status.batch_id})).fetchone()
        if row is None:
            return None
        pool_id, *facts = row
        engines = await (await conn.execute(queries.POOL_ENGINES, {"pool_id": pool_id})).fetchall()
    views = tuple(EngineView(EngineState(state), *rest) for state, *rest in engines)
    return estimate(Outlook(status.state, views, *facts))


async def results(
    database: Database, batch_id: int, run: int, *, store: Store | None = None, after: int = 0, page: int = 200
) -> AsyncIterator[list[ItemResult]]:
    """Pages of results in input order: the answers of any run, the errors of this one. Bodies in the store are fetched.

    Holds no connection between pages, so a slow reader pins nothing.
    """
    while True:
        async with database.relaxed() as conn:
            parameters = {"batch_id": batch_id, "run": run, "after": after, "limit": page}
            rows = await (await conn.execute(queries.RESULTS, parameters, binary=True)).fetchall()
        if rows:
            async for part in _whole([ItemResult(*row) for row in rows], store):
                yield part
            after = rows[-1][0] + 1
        if len(rows) < page:
            return


async def _whole(page: list[ItemResult], store: Store | None) -> AsyncIterator[list[ItemResult]]:
    """The page in order, bodies that lie in the store put in their place; of these few are in memory at once."""
    while page:
        cut = [i for i, item in enumerate(page, 1) if item.stored][:_LARGE_AT_ONCE]
        end = cut[-1] if len(cut) == _LARGE_AT_ONCE else len(page)
        part, page = page[:end], page[end:]
        yield list(await asyncio.gather(*(_fetched(item, store) for item in part)))


async def _fetched(item: ItemResult, store: Store | None) -> ItemResult:
    if not item.stored or store is None or item.body is None:
        return item
    return replace(item, body=await store.get(item.body.decode()), stored=False)
