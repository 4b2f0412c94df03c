"""Reads pipelines with their stages: each stage is a batch, with its live counts and what it waits for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from app.db.pool import Connection, Database
from app.errors import NotFound, PlaceUnknown
from app.flows.stages import Definition
from app.pipelines import ids, stored_flow
from app.pipelines import reads_sql as sql
from app.queue import reads
from app.queue.bodies import StoredBodies
from app.queue.estimate import Outlook
from app.queue.reads import BatchStatus
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.states import BatchState
from app.tenants.service import Tenant

MOST_LISTED, MOST_WAITING = 100, 10_000
_PICO = 10**12


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """A pipeline as it is stored. `inputs`: lines of its input; None: not known yet. `budget`: 10^-9 of the currency.
    `paused_for`: why it pauses; None: its owner paused it, or it does not. `source_id`: the batch that is still to be copied.
    `begins_with_batch`: its input is a batch that runs, with stages behind it.
    """

    pipeline_id: int
    request_id: UUID
    name: str | None
    state: BatchState
    run: int
    definition: bytes
    inputs: int | None
    budget: int | None
    paused_for: str | None
    created_at: datetime
    opened_at: datetime
    expires_at: datetime | None
    finalized_at: datetime | None
    source_id: int | None
    begins_with_batch: bool

    @property
    def public_id(self) -> str:
        """The id callers see."""
        return ids.format_id(self.request_id)


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage as it is stored. `taken`: results of its parent that were handed on to it. `ran`, `passed`, `refused`: items by how
    they began; `dropped`: items of the parent that made none. `waits_for`: stages that must be final before it starts.
    `cost`: of its results, in `currency`, of which its model is paid; None: it has no price.
    `parked`: items that wait for an answer from outside, at most MOST_WAITING. `stuck`: results that it waits for were set aside.
    """

    pipeline_id: int
    n: int
    name: str
    batch_id: int
    request_id: UUID
    parent_id: int | None
    taken: int
    ran: int
    passed: int
    dropped: int
    refused: int
    waits_for: Sequence[int] | None
    line_id: int | None
    cost: float
    currency: str | None
    parked: int
    stuck: bool


@dataclass(frozen=True, slots=True)
class StageSight:
    """A stage with its batch at this moment. Without an outlook it has no open chunk."""

    row: StageRow
    status: BatchStatus
    outlook: Outlook | None


@dataclass(frozen=True, slots=True)
class Spent:
    """What stages have cost so far, in a currency."""

    amount: float
    currency: str


@dataclass(frozen=True, slots=True)
class Sums:
    """The items of all stages that run something."""

    total: int = 0
    ok: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class PipelineSight:
    """A pipeline at this moment. `given`: its definition, as its caller sent it; None: it was deleted, with all contents."""

    row: PipelineRow
    flow: Definition
    given: Mapping[str, Any] | None
    stages: Sequence[StageSight]
    spent: Spent | None

    def stage(self, name: str) -> StageSight:
        """The stage of this id, with the last of its re-asks and escalation; or that of this name or number. Raises NotFound."""
        found = next((each for each in self.stages if name in (str(each.row.n), each.row.name)), None)
        if name == name.partition(".")[0] and not name.isdecimal():
            same = [each for each in self.stages if each.row.name.partition(".")[0] == name]
            found = same[-1] if same else None
        if found is None:
            known = ", ".join(each.row.name for each in self.stages)
            raise NotFound(f"The pipeline has no stage {name[:60]!r}; it has {known}")
        return found


async def row(database: Database, tenant: Tenant, request_id: UUID) -> PipelineRow:
    """A pipeline of the account. Raises NotFound."""
    async with database.relaxed() as conn:
        found = await _one(conn, sql.ONE, tenant, request_id)
    if found is None:
        raise NotFound(f"No pipeline found with id '{ids.format_id(request_id)}'.")
    return found


async def of_batch(database: Database, tenant: Tenant, request_id: UUID) -> PipelineRow | None:
    """The pipeline of which a batch is a stage; None: of none."""
    async with database.relaxed() as conn:
        return await _one(conn, sql.OF_BATCH, tenant, request_id)


async def _one(conn: Connection, query: str, tenant: Tenant, request_id: UUID) -> PipelineRow | None:
    values = {"tenant_id": tenant.tenant_id, "request_id": request_id}
    found = await (await conn.execute(query, values)).fetchone()
    return None if found is None else row_of(found)


def row_of(found: Sequence[Any]) -> PipelineRow:
    """A pipeline from the columns of `reads_sql.COLUMNS`."""
    row = PipelineRow(*found)
    return replace(row, state=BatchState(row.state))


async def stages(conn: Connection, pipeline_id: int) -> list[StageRow]:
    """The stages of a pipeline, the input first."""
    values = {"pipeline_ids": [pipeline_id], "most": MOST_WAITING}
    return [StageRow(*found) for found in await (await conn.execute(sql.STAGES, values)).fetchall()]


async def definition(database: Database, settings: Settings, of: PipelineRow) -> bytes:
    """The stored definition of a pipeline in the clear. Raises KeysUnavailable."""
    return await stored_flow.opened(StoredBodies(database, Keyring.of(settings), of.pipeline_id), of.definition)


async def get(database: Database, settings: Settings, tenant: Tenant, request_id: UUID) -> PipelineSight:
    """A pipeline with its stages. Raises NotFound, KeysUnavailable."""
    return await sight(database, settings, tenant, await row(database, tenant, request_id))


async def sight(database: Database, settings: Settings, tenant: Tenant, of: PipelineRow) -> PipelineSight:
    """The stages of a pipeline that was read. Raises KeysUnavailable."""
    sights = await stage_sights(database, tenant, of.pipeline_id)
    async with database.relaxed() as conn:
        costs = await spent(conn, [of.pipeline_id])
    if not of.definition:
        return PipelineSight(of, _emptied(sights), None, sights, costs.get(of.pipeline_id))
    given = await definition(database, settings, of)
    flow = stored_flow.read(given)
    return PipelineSight(of, flow, orjson.loads(given), sights, costs.get(of.pipeline_id))


def _emptied(sights: Sequence[StageSight]) -> Definition:
    numbers = {each.row.batch_id: each.row.n for each in sights}
    return stored_flow.emptied(
        (each.row.n, each.row.name, numbers.get(each.row.parent_id or 0, 0), each.status.endpoint, each.status.model)
        for each in sights
        if each.row.n > 0
    )


async def stage_sights(database: Database, tenant: Tenant, pipeline_id: int) -> list[StageSight]:
    """The stages of a pipeline at this moment, the input first."""
    async with database.relaxed() as conn:
        rows = await stages(conn, pipeline_id)
    seen = await reads.snapshots(database, [(tenant.tenant_id, each.request_id) for each in rows])
    return [StageSight(each, *found) for each, found in zip(rows, seen, strict=True) if found is not None]


async def spent(conn: Connection, pipeline_ids: Sequence[int]) -> dict[int, Spent]:
    """What each pipeline has cost so far; one whose models have no price has none."""
    rows = await (await conn.execute(sql.SPENT, {"pipeline_ids": list(pipeline_ids)})).fetchall()
    return {pipeline_id: Spent(pico / _PICO, currency) for pipeline_id, pico, currency in rows}


async def check_place(conn: Connection, tenant_id: int | None, after: UUID | None) -> None:
    """Raise PlaceUnknown unless a page can begin after this pipeline. Its row stays until retention takes the older ones, too."""
    values = {"tenant_id": tenant_id, "request_id": after}
    if after is not None and await (await conn.execute(sql.KNOWN, values)).fetchone() is None:
        raise PlaceUnknown(ids.format_id(after))


async def page(
    database: Database, tenant: Tenant, *, after: UUID | None = None, limit: int = 20
) -> tuple[list[tuple[PipelineRow, Sums, Spent | None]], bool]:
    """The newest pipelines after `after`, and whether there are more. Raises PlaceUnknown."""
    values = {"tenant_id": tenant.tenant_id, "after": after, "limit": limit + 1}
    async with database.relaxed() as conn:
        await check_place(conn, tenant.tenant_id, after)
        found = [row_of(each) for each in await (await conn.execute(sql.PAGE, values)).fetchall()]
        shown = {"pipeline_ids": [each.pipeline_id for each in found[:limit]]}
        sums = {n: Sums(*counts) for n, *counts in await (await conn.execute(sql.SUMS, shown)).fetchall()}
        costs = await spent(conn, shown["pipeline_ids"])
    rows = [(each, sums.get(each.pipeline_id, Sums()), costs.get(each.pipeline_id)) for each in found[:limit]]
    return rows, len(found) > limit
