"""Reads: a batch's status, the facts for its estimate, and its results page by page."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from app.db import byte_pages, day_tables
from app.db.pool import Connection, Database
from app.engines.rate_card import Work, queued_work
from app.queue import forecast_sql, read_sql
from app.queue.bodies import StoredBodies
from app.queue.estimate import Gate, Missing, Other, Outlook, no_pace, until_served
from app.queue.item_counts import ItemCounts
from app.sealing.keyring import Keyring
from app.states import BatchState, EngineState
from app.storage.store import Store

_LARGE_AT_ONCE = 4
_SMALL_OBJECT = byte_pages.PAGE_BYTES // _LARGE_AT_ONCE  # bytes; a larger one is fetched alone


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """A batch with its live counts. `started`: a worker has leased one of its chunks. `policy`: the version (`id`) and the rules
    that had a say in it, the model it had `asked` for if another one answers, its fallback models, and its `models` if they are
    several; None: no rule had. `diverted_to`: models to which the policy moved waiting items; None: none.
    `shredded_at`: when its contents were deleted. `pipeline`: of which it is a stage. `fed`: more items may come.
    `returns_at` as in ItemCounts. `details`: as in `app.engines.outcome.Usage`, of the chunks that have ended.
    """

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
    opened_at: datetime
    endpoint: str = ""
    tags: Sequence[str] = ()
    metadata: dict[str, str] | None = None
    policy: dict[str, Any] | None = None
    diverted_to: list[str] | None = None
    name: str | None = None
    traceparent: str | None = None
    shredded_at: datetime | None = None
    pipeline: UUID | None = None
    fed: bool = False
    claimed: int = 0
    in_engine: int = 0
    returns_at: datetime | None = None
    details: dict[str, int] | None = None

    @property
    def work(self) -> Work:
        """By which price its items are charged."""
        return queued_work(expires=self.expires_at is not None or self.pipeline is not None)

    @property
    def has_one_model(self) -> bool:
        """Whether no rule of the policy has given its items several models, whose prices may differ."""
        return not (self.policy or {}).get("models") and not self.diverted_to

    @property
    def items(self) -> ItemCounts:
        """Where its items are."""
        ended = self.finalized_at is not None
        return ItemCounts(self.total, self.ok, self.failed, self.claimed, self.in_engine, ended, self.returns_at)

    def parts(self, of: str, **counted: int) -> dict[str, int]:
        """The parts of its `input` or `output` tokens by name: these, and what engines counted beside them."""
        beside = {
            name.removeprefix(f"{of}."): n for name, n in (self.details or {}).items() if name.startswith(f"{of}.")
        }
        return counted | beside

    @property
    def unfinished(self) -> int:
        """Items without a result. In a final batch these were cancelled or have expired."""
        return self.total - self.ok - self.failed


class ItemResult(NamedTuple):
    """One line of a batch's results. `body`: None while the item has no result. `model`: None if it is the batch's. `run`: of
    its result. `vault`: the sealed values of its placeholders. `item`: the request, if it was read too.
    """

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
    model: str | None = None
    run: int | None = None
    vault: bytes | None = None
    item: bytes | None = None
    item_stored: bool = False


@dataclass(frozen=True, slots=True)
class Prospect:
    """The facts for the forecast of a batch that does not exist yet, for one account in one pool.

    `ahead_tokens`: of the account, and first in order. `others`: other accounts with work. `pace`: of the pool, in tokens per
    second; None: not measured lately; `still`: seconds without an end, if it is 0. `engines`: how many are ready.
    """

    ahead_tokens: float = 0.0
    weight: float = 1.0
    others: tuple[Other, ...] = ()
    pace: float | None = None
    still: float | None = None
    engines: int = 0

    @property
    def missing(self) -> Missing:
        """Why there is no forecast, where there is none."""
        return no_pace(self.pace) if self.engines else Missing.ENGINE

    def seconds(self, tokens: int) -> float | None:
        """Seconds until so many more tokens are done. None: no engine is ready, or no pace was measured."""
        if not self.pace or not self.engines:
            return None
        return until_served(self.ahead_tokens + tokens, self.weight, self.others, self.pace)


BatchSnapshot = tuple[BatchStatus, Outlook | None]  # without an outlook once it has no chunks


async def status(database: Database, tenant_id: int, request_id: UUID) -> BatchStatus | None:
    """The batch of this tenant. None: the tenant has no such batch."""
    async with database.relaxed() as conn:
        parameters = {"tenant_id": tenant_id, "request_id": request_id}
        row = await (await conn.execute(read_sql.STATUS, parameters)).fetchone()
    return None if row is None else _status(row)


def _status(row: Sequence[Any]) -> BatchStatus:
    status = BatchStatus(*row)
    return replace(status, state=BatchState(status.state), started=status.started or status.ok + status.failed > 0)


async def snapshots(database: Database, batches: Sequence[tuple[int, UUID]]) -> list[BatchSnapshot | None]:
    """Status and outlook of each batch, by tenant and request id. None: the tenant has no such batch.

    It takes three statements, whatever the number of batches.
    """
    tenants, ids = [tenant for tenant, _ in batches], [request_id for _, request_id in batches]
    async with database.relaxed() as conn:
        cursor = await conn.execute(read_sql.STATUSES, {"tenant_ids": tenants, "request_ids": ids}, binary=True)
        found = {(tenant_id, row[1]): _status(row) for tenant_id, *row in await cursor.fetchall()}
        unfinished = [status.batch_id for status in found.values() if status.finalized_at is None]
        outlooks = await _outlooks(conn, unfinished) if unfinished else {}
    statuses = map(found.get, batches)
    return [None if status is None else (status, outlooks.get(status.batch_id)) for status in statuses]


async def _outlooks(conn: Connection, batch_ids: Sequence[int]) -> dict[int, Outlook]:
    """Outlooks by batch id. A batch without chunks has none."""
    rows = await (await conn.execute(forecast_sql.OUTLOOKS, {"batch_ids": batch_ids}, binary=True)).fetchall()
    gates: dict[int, list[Gate]] = {row[1]: [] for row in rows}
    cursor = await conn.execute(forecast_sql.GATES, {"pool_ids": list(gates)}, binary=True)
    for pool_id, engine_id, name, state, *rest in await cursor.fetchall():
        gates[pool_id].append(Gate(engine_id, name, EngineState(state), *rest))
    by_pool = {pool_id: tuple(found) for pool_id, found in gates.items()}
    return {row[0]: _outlook(by_pool[row[1]], row[2:]) for row in rows}


def _outlook(gates: tuple[Gate, ...], facts: Sequence[Any]) -> Outlook:
    others = tuple(zip(facts[10], facts[11], strict=True))
    values = (*facts[:10], others, *facts[12:])
    return Outlook(gates, *values)


async def unlimited(database: Database, batch_id: int) -> int:
    """How many items that a worker has of a batch have no limit of their answer, as far as can be read in the database."""
    async with database.relaxed() as conn:
        row = await (await conn.execute(read_sql.UNLIMITED, {"batch_id": batch_id})).fetchone()
    return int(row[0]) if row else 0


async def prospect(database: Database, tenant_id: int, served: str) -> Prospect:
    """The facts for a forecast of a new batch of this account in the pool of the model `served`."""
    async with database.relaxed() as conn:
        values = {"tenant_id": tenant_id, "model": served}
        row = await (await conn.execute(forecast_sql.PROSPECT, values)).fetchone()
    if row is None:
        return Prospect()
    ahead, weight, weights, tokens, *rest = row
    return Prospect(ahead, weight, tuple(zip(weights, tokens, strict=True)), *rest)


async def results(
    database: Database,
    batch_id: int,
    run: int,
    *,
    store: Store | None = None,
    keyring: Keyring | None = None,
    after: int = 0,
    page: int = 200,
    items: bool = False,
    vaults: bool = False,
) -> AsyncIterator[list[ItemResult]]:
    """Pages of results in input order: answers of any run, errors of this one. Bodies in the object store are fetched with
    `store`, sealed ones opened with `keyring`. Raises KeysUnavailable, NotFound.

    `items`: include the requests. `vaults`: open what a data key has sealed of the vaults. `page`: most rows of a page, which
    ends before it holds too many bytes (`byte_pages`). The next page is read while the caller uses the present one. No connection
    is held between pages, so that a slow reader blocks nothing.
    """
    query = read_sql.RESULTS_AND_ITEMS if items else read_sql.RESULTS
    bodies = StoredBodies(database, keyring, batch_id) if keyring is not None else None

    async def fetch(after: int) -> tuple[list[ItemResult], bool]:
        async with database.relaxed() as conn:
            parameters = {"batch_id": batch_id, "run": run, "after": after, "limit": page}
            cursor = await day_tables.execute(conn, query, batch_id, parameters, binary=True)
            rows, more = await byte_pages.read(cursor, page)
            return [ItemResult(*row) for row in rows], more

    current, more = await fetch(after)
    while current:
        following = asyncio.create_task(fetch(current[-1].seq + 1)) if more else None
        try:
            async for part in _with_bodies(current, store):
                yield part if bodies is None else [await _opened(item, bodies, vaults=vaults) for item in part]
            current, more = await following if following is not None else ([], False)
        finally:
            if following is not None:
                following.cancel()


async def _with_bodies(page: list[ItemResult], store: Store | None) -> AsyncIterator[list[ItemResult]]:
    """The page in order, in parts, with bodies from the object store: some small ones together, large ones alone."""
    if not any(item.stored or item.item_stored for item in page):
        yield page
        return
    while page:
        cut = [i for i, item in enumerate(page, 1) if item.stored or item.item_stored][:_LARGE_AT_ONCE]
        end = cut[-1] if len(cut) == _LARGE_AT_ONCE else len(page)
        part, page = page[:end], page[end:]
        ready: list[ItemResult] = []
        for item, fetched in zip(
            part, await asyncio.gather(*(_fetched(i, store, _SMALL_OBJECT) for i in part)), strict=True
        ):
            if fetched is not None:
                ready.append(fetched)
                continue
            if ready:
                yield ready
                ready = []
            whole = await _fetched(item, store)
            assert whole is not None
            yield [whole]
        if ready:
            yield ready


async def _fetched(item: ItemResult, store: Store | None, most: int | None = None) -> ItemResult | None:
    """The item with its bodies from the store. None: one of them has at least `most` bytes."""
    if store is None:
        return item
    if item.stored and item.body is not None:
        if (body := await _object(store, item.body.decode(), most)) is None:
            return None
        item = item._replace(body=body, stored=False)
    if item.item_stored and item.item is not None and item.ok:
        if (body := await _object(store, item.item.decode(), most)) is None:
            return None
        item = item._replace(item=body, item_stored=False)
    return item


async def _object(store: Store, key: str, most: int | None) -> bytes | None:
    """An object. None: it has at least `most` bytes."""
    if most is None:
        return await store.get(key)
    body = await store.get_range(key, 0, most)
    return body if len(body) < most else None


async def _opened(item: ItemResult, bodies: StoredBodies, *, vaults: bool) -> ItemResult:
    if item.body is not None and item.run is not None and not item.stored:
        item = item._replace(body=await bodies.result(item.seq, item.run, item.body, ok=item.ok))
    if item.item is not None and not item.item_stored:
        item = item._replace(item=await bodies.payload(item.seq, item.item))
    if vaults and item.vault is not None:
        item = item._replace(vault=await bodies.vault(item.seq, item.vault))
    return item


class SessionPrompt(NamedTuple):
    """An answered item of a session, by the name that its caller gave it. `prompt`: tokens, of which `cached` were cached."""

    tenant_id: int
    session: str
    line_id: int
    model: str
    prompt: int
    cached: int


async def session_prompts(conn: Connection, runs: Sequence[tuple[int, int]]) -> list[SessionPrompt]:
    """The answered items of these runs (batch, run) that belong to sessions, in the order of their ends."""
    values = {"batch_ids": [batch_id for batch_id, _ in runs], "runs": [run for _, run in runs]}
    return [SessionPrompt(*row) for row in await (await conn.execute(read_sql.SESSION_PROMPTS, values)).fetchall()]
