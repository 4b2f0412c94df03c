"""Verbs on a whole pipeline as rows: pause, resume, cancel, expire, retry, and its end.

The row of the pipeline changes first, and its batches follow in the same transaction. Whoever hands results on holds the row, so
no child is made once a verb has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from app.db.pool import Connection, Database
from app.flows import counting
from app.flows.stages import INPUT, ByValue, External, Input, Stage
from app.pipelines import ids, parked
from app.pipelines import running as pipelines
from app.pipelines import sql as queries
from app.pipelines.parked import Place
from app.pipelines.running import Running
from app.queue import handoff, settling, stages
from app.queue.batch_state import ItemModel, Items, Reopened
from app.queue.settling import Settled
from app.sealing.keyring import Keyring
from app.states import BatchState

Verb = Literal["pause", "resume", "cancel"]
THEN = Input()  # the input is a batch that runs


@dataclass(frozen=True, slots=True)
class Ended:
    """A pipeline that has just become final."""

    pipeline_id: int
    request_id: UUID
    tenant_id: int
    state: BatchState
    run: int


@dataclass(frozen=True, slots=True)
class Standing:
    """A pipeline as its row has it. `shredded`: contents of it were deleted."""

    pipeline_id: int
    state: BatchState
    run: int
    shredded: bool


async def transition(
    conn: Connection, verb: Verb, tenant_id: int, request_id: UUID, paused_for: str | None = None
) -> tuple[int, BatchState, list[Settled]] | None:
    """Pause, resume or cancel a pipeline, its batches and their queued chunks. Call in a durable transaction.

    Returns its id, its state before, and the batches that are final now. None: it is unknown, or its state forbids it.
    """
    values = {"tenant_id": tenant_id, "request_id": request_id, "paused_for": paused_for if verb == "pause" else None}
    row = await (await conn.execute(queries.transition(verb), values)).fetchone()
    if row is None:
        return None
    moved = await stages.follow(conn, verb, row[0])
    if verb == "resume":
        await handoff.resume(conn, await _batches(conn, row[0]))
        await stages.awake(conn, [row[0]])
    if verb == "cancel":
        await parked.drop(conn)
    ended = await settling.finalise(conn, moved) if verb == "cancel" else []
    return int(row[0]), BatchState(row[1]), ended


async def standing(conn: Connection, tenant_id: int, request_id: UUID) -> Standing | None:
    """The state of this tenant's pipeline. None: the tenant has no such pipeline."""
    values = {"tenant_id": tenant_id, "request_id": request_id}
    row = await (await conn.execute(queries.STANDING, values)).fetchone()
    return None if row is None else Standing(row[0], BatchState(row[1]), row[2], row[3])


async def _batches(conn: Connection, pipeline_id: int) -> list[int]:
    rows = await conn.execute(queries.BATCHES, {"pipeline_id": pipeline_id})
    return [batch_id for (batch_id,) in await rows.fetchall()]


async def expire(conn: Connection) -> int:
    """Set pipelines whose time is over to `expiring`, with their batches. Returns how many. Call in a transaction."""
    rows = await (await conn.execute(queries.EXPIRE)).fetchall()
    for (pipeline_id,) in sorted(rows):
        await stages.follow(conn, "expire", pipeline_id)
    return len(rows)


async def end(conn: Connection, pipeline_ids: Sequence[int]) -> list[Ended]:
    """End those of the pipelines that are done. Call in a transaction, in which no batch was changed before."""
    rows = await (await conn.execute(queries.END, {"pipeline_ids": list(pipeline_ids)})).fetchall()
    ended = [Ended(row[0], row[1], row[2], BatchState(row[3]), row[4]) for row in rows]
    if ended:
        await stages.feed_no_more(conn, [each.pipeline_id for each in ended])
    return ended


async def of_batches(conn: Connection, batch_ids: Sequence[int]) -> list[int]:
    """The pipelines of these batches."""
    rows = await conn.execute(queries.OF_BATCHES, {"batch_ids": list(batch_ids)})
    return [pipeline_id for (pipeline_id,) in await rows.fetchall()]


async def unfinished(conn: Connection) -> list[int]:
    """All pipelines that have not ended."""
    return [pipeline_id for (pipeline_id,) in await (await conn.execute(queries.UNFINISHED)).fetchall()]


@dataclass(frozen=True, slots=True)
class Again:
    """Requests of a stage that run again. `batch`: that of the stage, reopened."""

    number: int
    batch: Reopened
    items: dict[ItemModel, Items]


async def reopen(conn: Connection, tenant_id: int, request_id: UUID, of_run: int | None = None) -> int | None:
    """Begin a new run of a final pipeline. Returns its id. None: it is unknown or not final, its contents were deleted, or its
    run is not `of_run`. Call `begin_run` in the same transaction.
    """
    values = {"tenant_id": tenant_id, "request_id": request_id, "of_run": of_run}
    row = await (await conn.execute(queries.REOPEN, values)).fetchone()
    return None if row is None else int(row[0])


async def read(database: Database, keyring: Keyring, pipeline_id: int) -> Running:
    """A pipeline as its rows have it. Raises KeysUnavailable."""
    return (await pipelines.load(database, keyring, [pipeline_id]))[pipeline_id][0]


async def begin_run(conn: Connection, before: Running) -> list[Again]:
    """Reopen the stages of a pipeline that was just reopened. `before`: as it was read before. Returns what runs again: requests
    without an answer from which nothing was made. A pack that was made stays, and so does an item that was an error from the
    beginning. The caller queues what is returned.
    """
    run, flow, found = before.run + 1, before.flow, list[Again]()
    for stage in before.stages:
        own = stage.number != INPUT
        if not own and flow.input != THEN and before.inputs is not None:
            await stages.feed_again(conn, stage.batch_id)
            continue
        items = await _again(conn, before, stage.number)
        seqs = sorted(seq for seqs, _ in items.values() for seq in seqs)
        waits = own and bool(flow.stage(stage.number).depends_on) and stage.state == BatchState.CANCELLED
        state = BatchState.PAUSED if waits and await _still_waits(conn, stage.batch_id) else BatchState.OPEN
        feeds = bool(flow.children(stage.number))
        fed = own or before.inputs is None
        batch = await stages.reopen(conn, stage.batch_id, run, seqs, state=state, feeds=feeds, fed=fed)
        if own and isinstance(work := flow.stage(stage.number).work, External):
            place = Place(ids.format_id(before.request_id), flow.stage(stage.number).name, stage.batch_id, run)
            await parked.park(conn, place, seqs, work.timeout)
        elif items:
            found.append(Again(stage.number, batch, items))
    await handoff.resume(conn, [stage.batch_id for stage in before.stages])
    await stages.awake(conn, [before.pipeline_id])
    return found


async def _again(conn: Connection, running: Running, number: int) -> dict[ItemModel, Items]:
    children = running.flow.children(number)
    if any(isinstance(c.pack, ByValue) and (running.stages[c.number].packs or 0) >= 0 for c in children):
        return {}
    of = [_child(running, child) for child in children if not isinstance(child.pack, ByValue)]
    return await stages.again(conn, running.stages[number].batch_id, of)


def _child(running: Running, child: Stage) -> stages.Child:
    batch_id = running.stages[child.number].batch_id
    if child.pack:
        return stages.Child(batch_id, 1, counting.width(running.flow, child))
    return stages.Child(batch_id, child.each.most if child.each else 1, 1)


async def _still_waits(conn: Connection, batch_id: int) -> bool:
    row = await (await conn.execute(queries.WAITS, {"batch_id": batch_id})).fetchone()
    return row is not None
