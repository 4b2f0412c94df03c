"""Writes what becomes of results: one transaction, which also deletes their markers. It locks a batch only where rules have
decided about its items what they had not decided before.

Lock order: quotas, the feeders' lock, pipelines, pools, packs, stages. A commit is relaxed: if a crash of the server loses it,
the markers are back and the children are gone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg.types.json import Jsonb

from app.admission import quotas
from app.admission.quotas import Demand
from app.budgets.service import Look
from app.db.pool import Connection, Database
from app.flows import counting
from app.flows.stages import Stage
from app.pipelines import feeding_sql as queries
from app.pipelines import ids, parked
from app.pipelines.children import Made, Slice
from app.pipelines.parked import Place
from app.pipelines.running import Running, RunningStage
from app.policy import vaults
from app.policy.vaults import Vaults
from app.queue import copy_format, handoff, ingest, stages
from app.queue.bodies import BatchSeal
from app.queue.chunking import NewChunk
from app.queue.handoff import Marker
from app.queue.handoff_sql import PACKS
from app.states import BatchState
from app.tenants.service import Tenant


class Changed(Exception):
    """What was read is not so any more: another feeder was faster, or a verb came. Begin again."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests of a stage, `number`, for a model go: their line, at the price of this moment, their pool, their chunks."""

    number: int
    model: str
    line_id: int | None
    pool_id: int
    chunks: Sequence[NewChunk]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A slice with all that is needed to write it. `seals`: by batch, of those that are sealed;
    `vault_seals`: of those of which only the vaults are. `look`: the budgets by which the targets were cut.
    """

    slice: Slice
    targets: Sequence[Target]
    seals: Mapping[int, BatchSeal]
    vaults: Vaults
    vault_seals: Mapping[int, BatchSeal]
    look: Look

    def line_of(self, stage: int, model: str | None) -> int | None:
        """The line of requests of a stage that a rule moved to this model. None: it moved them to none."""
        found = (each.line_id for each in self.targets if (each.number, each.model) == (stage, model))
        return next(found, None) if model is not None else None


async def write(database: Database, markers: Sequence[Marker], prepared: Sequence[Prepared]) -> None:
    """Write the children of the results that the markers name. Raises Changed, BudgetsChanged, QuotaExceeded, QuotaBusy."""
    async with database.relaxed() as conn, conn.transaction():
        await _check_quotas(conn, prepared)
        await handoff.exclusively(conn)
        await lock(conn, [each.slice.running for each in prepared])
        if not await handoff.take(conn, markers):
            raise Changed
        for each in prepared:
            await _write_items(conn, each)
        await _write_chunks(conn, prepared)
        for each in prepared:
            await _count_packs(conn, each.slice)
            await _count_stages(conn, each.slice)
            await each.look.check(conn)


async def _check_quotas(conn: Connection, prepared: Sequence[Prepared]) -> None:
    """Raise QuotaExceeded, QuotaBusy unless the accounts may have all of this queued and stored: as a submit of it."""
    demands: dict[Tenant, Demand] = {}
    for each in prepared:
        tenant = each.slice.running.tenant
        if tenant.has_quota:
            demands[tenant] = demands.get(tenant, Demand()) + demand(each.slice.made.values())
    for tenant, wanted in sorted(demands.items(), key=lambda pair: pair[0].tenant_id):
        await quotas.check_free(conn, tenant, wanted)


def demand(made: Iterable[Sequence[Made]]) -> Demand:
    """What items add to the quotas of their account."""
    items = [item for of_stage in made for item in of_stage]
    tokens = sum(item.request.facts.est_tokens for item in items if item.request is not None)
    return Demand(0, sum(item.ok is None for item in items), tokens, sum(len(item.given) for item in items))


async def lock(conn: Connection, pipelines: Iterable[Running]) -> None:
    """Hold off verbs on the pipelines until the transaction ends. Raises Changed unless they are open and as they were read."""
    known = {each.pipeline_id: (each.state, each.run) for each in pipelines}
    rows = await (await conn.execute(queries.LOCK, {"pipeline_ids": sorted(known)})).fetchall()
    found = {pipeline_id: (BatchState(state), run) for pipeline_id, state, run in rows}
    if found != known or any(state != BatchState.OPEN for state, _ in found.values()):
        raise Changed


async def _write_items(conn: Connection, given: Prepared) -> None:
    """Items with their results, parked ones, and the counts of their batches."""
    running = given.slice.running
    rows: list[bytes] = []
    results: list[tuple[object, ...]] = []
    for number, made in given.slice.made.items():
        stage = running.stages[number]
        rows += [_item(given, stage, item) for item in made]
        ended = [item for item in made if item.ok is not None]
        results += [_result(given, running, stage, item) for item in ended]
    if rows:
        await stages.copy_items(conn, [copy_format.whole(rows)])
    if results:
        await copy(conn, queries.COPY_RESULTS, queries.COPY_RESULTS_TYPES, results)
    for number, made in given.slice.made.items():
        await _count_items(conn, running, running.stages[number], made)
        await _park(conn, running, number, made)
        for policy in given.slice.policies(number):
            await govern(conn, running.stages[number], policy)


async def govern(conn: Connection, stage: RunningStage, policy: Mapping[str, Any] | None) -> None:
    """Note what rules have decided about items that were added to a stage, unless it has that already."""
    known = stage.policy or {}
    new = policy is not None and any(
        each not in known.get(name, ()) for name in ("rules", "tools") for each in policy.get(name, ())
    )
    if new:
        await conn.execute(queries.GOVERNED, {"batch_id": stage.batch_id, "policy": Jsonb(policy)})


async def _park(conn: Connection, running: Running, number: int, made: Sequence[Made]) -> None:
    """Let the items of a stage wait that are asked outside."""
    waiting = [item for item in made if item.timeout is not None]
    if waiting and waiting[0].timeout:  # it is that of the stage
        name = running.flow.stage(number).name
        place = Place(ids.format_id(running.request_id), name, running.stages[number].batch_id, running.run)
        await parked.park(conn, place, [item.seq for item in waiting], waiting[0].timeout)


async def _count_items(conn: Connection, running: Running, stage: RunningStage, made: Sequence[Made]) -> None:
    """Add items to their batch, and hand the results on that some of them have already."""
    ended = [item for item in made if item.ok is not None]
    ok = sum(item.ok is True for item in ended)
    errors = [item.error for item in ended if item.error is not None] or None
    values = {"batch_id": stage.batch_id, "ok": ok, "failed": len(ended) - ok, "added": len(made), "errors": errors}
    await conn.execute(queries.ADDED, values | {"bytes": sum(len(item.given) for item in made)})
    if ended and stage.feeds:
        size = sum(len(item.body) for item in ended)
        await handoff.add(conn, stage.batch_id, running.run, [item.seq for item in ended], size=size)


def _item(given: Prepared, stage: RunningStage, item: Made) -> bytes:
    request, batch_id, vault, body = item.request, stage.batch_id, None, item.given
    seal = given.seals.get(batch_id)
    if item.values:
        vault = given.vaults.sealed(item.values, vaults.of_item(batch_id, item.seq))
        keeper = seal or given.vault_seals.get(batch_id)
        vault = vault if keeper is None else keeper.vault(item.seq, vault)
    return copy_format.payload_row(
        batch_id,
        item.seq,
        item.reference,
        item.affinity,
        request.facts.est_tokens if request else 0,
        body if seal is None else seal.payload(item.seq, body),
        wants_json=request is not None and request.facts.wants_json,
        model=request.model if request else None,
        vault=vault,
        line_id=given.line_of(stage.number, request.model) if request else None,
    )


def _result(given: Prepared, running: Running, stage: RunningStage, item: Made) -> tuple[object, ...]:
    seal = given.seals.get(stage.batch_id)
    body = item.body if seal is None else seal.result(item.seq, running.run, item.body)
    return stage.batch_id, item.seq, running.run, int(item.ok is True), 0, body, item.error


async def _write_chunks(conn: Connection, prepared: Sequence[Prepared]) -> None:
    """Chunks in the order of their pools and accounts, like every transaction that locks these."""
    targets = [(each.slice.running, target) for each in prepared for target in each.targets]
    for running, target in sorted(targets, key=lambda pair: (pair[1].pool_id, pair[0].tenant_id, pair[1].number)):
        owner = running.stages[target.number].batch_id, running.run, running.tenant_id, target.pool_id
        await ingest.write_chunks(conn, owner, target.chunks, deadline(running, target.number))


def deadline(running: Running, stage: int) -> datetime:
    """Of the chunks of a stage: items that have begun finish first, while their prefixes are cached."""
    depth = counting.depths(running.flow)[stage]
    return running.deadline.astimezone(UTC) - timedelta(seconds=depth)


async def _count_packs(conn: Connection, of: Slice) -> None:
    """Count the open inputs of packs. Those that wait for nothing more get a marker, and are made by the next slice."""
    running = of.running
    changes = {
        (running.stages[stage].batch_id, number): (running.flow.stage(stage), delta)
        for (stage, number), delta in of.changes.items()
        if delta
    }
    if not changes:
        return
    known, numbers = await handoff.open_inputs(conn, list(changes)), running.numbers()
    waits: dict[handoff.Pack, int] = {}
    for pack, (stage, delta) in changes.items():
        before = known.get(pack)
        if before is None:
            before = counting.beginning(stage, pack[1], numbers[stage.parent])
        if before > 0:  # else it was made in an earlier run, and stays
            waits[pack] = before + delta
            if waits[pack] < 0:
                raise ValueError(f"pack {pack[1]} of stage {stage.name} waits for {waits[pack]} inputs")
    await handoff.count(conn, waits)
    complete: dict[int, list[int]] = {}
    for batch_id, number in sorted(pack for pack, left in waits.items() if left == 0):
        complete.setdefault(batch_id, []).append(number)
    for batch_id, found in complete.items():
        await handoff.add(conn, batch_id, PACKS, found)


async def _count_stages(conn: Connection, of: Slice) -> None:
    """Add to the counts of stages. Raises Changed where the items of a stage are limited, and more ran than was known."""
    counted = sorted(of.counts.items())
    if not counted:
        return
    running = of.running
    values: dict[str, object] = {"batch_ids": [running.stages[number].batch_id for number, _ in counted]}
    for name in ("taken", "ran", "passed", "dropped", "refused"):
        values[name] = [getattr(counts, name) for _, counts in counted]
    before: dict[int, int] = dict(await (await conn.execute(queries.COUNTED, values)).fetchall())
    for stage in running.flow.stages:
        known = running.stages[stage.number]
        if stage.share < 1 and before.get(known.batch_id, known.ran) != known.ran:
            raise Changed


async def group(database: Database, running: Running, stage: Stage, packs: int, *, members: int, parts: int) -> None:
    """Note how many packs a stage by value has, and that they are to be made. Raises Changed."""
    batch_id = running.stages[stage.number].batch_id
    values = {"batch_id": batch_id, "packs": packs, "taken": members - parts, "dropped": members - parts}
    async with database.relaxed() as conn, conn.transaction():
        await handoff.exclusively(conn)
        await lock(conn, [running])
        if await (await conn.execute(queries.GROUPED, values)).fetchone() is None:
            raise Changed
        await handoff.add(conn, batch_id, PACKS, range(packs))


async def copy(conn: Connection, query: str, types: Sequence[str], rows: Iterable[tuple[object, ...]]) -> None:
    """Insert rows."""
    async with conn.cursor() as cursor, cursor.copy(query) as sent:
        sent.set_types(types)
        for row in rows:
            await sent.write_row(row)
