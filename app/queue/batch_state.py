"""A caller's verbs on a whole batch: pause, resume, cancel, retry. Call each inside one durable transaction.

The state of the batch changes first, then a sweep applies it to the chunks. The steward's sweeps catch chunks that a concurrent
transaction put back. A worker learns of the change by its next heartbeat, and then stops the items in its engine.
The end of a window is a verb of the steward: `app.queue.expiry`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from app.db import day_tables
from app.db.pool import Connection
from app.queue import batch_state_sql as queries
from app.queue import chunk_sweeps, ingest
from app.queue.chunking import NewChunk
from app.states import BatchState

MOST_READY = 64


@dataclass(frozen=True, slots=True)
class StoredState:
    """A batch's state and counts as its row has them, without the counts of its open chunks.

    `shredded`: its contents were deleted. `pipeline_id`: of which it is a stage; None: of none.
    """

    state: BatchState
    run: int
    ok: int
    failed: int
    total: int
    shredded: bool
    pipeline_id: int | None = None


@dataclass(frozen=True, slots=True)
class Reopened:
    """A batch after a retry has begun its run number `run`. `rules`: see BatchInProgress. `model_lines`: of each model."""

    batch_id: int
    run: int
    model: str
    deadline: datetime
    traceparent: str | None
    line_id: int | None
    open_ended: bool
    rules: list[str] | None
    model_lines: list[int] | None


async def transition(conn: Connection, verb: str, tenant_id: int, request_id: UUID) -> tuple[int, BatchState] | None:
    """`pause`, `resume` or `cancel` a batch and its queued chunks. Returns its id and its state before; None: it is unknown, or
    its state forbids it, or it is a stage of a pipeline.
    """
    parameters = {"tenant_id": tenant_id, "request_id": request_id}
    row = await (await conn.execute(queries.transition(verb), parameters)).fetchone()
    if row is None:
        return None
    await chunk_sweeps.sweep_batch(conn, row[0])
    return int(row[0]), BatchState(row[1])


async def reopen(conn: Connection, tenant_id: int, request_id: UUID, of_run: int | None) -> Reopened | None:
    """Begin a new run of a final batch that has unanswered items.

    None: it is unknown or not final, all its items are answered, or its current run is not `of_run`.
    """
    parameters = {"tenant_id": tenant_id, "request_id": request_id, "of_run": of_run}
    row = await (await conn.execute(queries.REOPEN, parameters)).fetchone()
    return None if row is None else Reopened(*row)


@dataclass(frozen=True, slots=True)
class ItemModel:
    """The model of items; None: that of the batch. `line_id`: of the price at which the policy moved them; None: it did not."""

    name: str | None
    line_id: int | None


Items = tuple[list[int], list[int]]  # seqs, estimated tokens


async def unanswered(conn: Connection, batch_id: int) -> dict[ItemModel, Items]:
    """The items that no run has answered, by model."""
    rows = await (await day_tables.execute(conn, queries.UNANSWERED, batch_id, {"batch_id": batch_id})).fetchall()
    return by_model(rows)


def by_model(rows: Iterable[tuple[int, int, str | None, int | None]]) -> dict[ItemModel, Items]:
    """Items by model. `rows`: number, estimated tokens, model and line of each."""
    found: dict[ItemModel, Items] = {}
    for seq, tokens, name, line_id in rows:
        seqs, est_tokens = found.setdefault(ItemModel(name, line_id), ([], []))
        seqs.append(seq)
        est_tokens.append(tokens)
    return found


async def requeue(conn: Connection, batch: Reopened, tenant_id: int, pool_id: int, chunks: Sequence[NewChunk]) -> None:
    """Insert chunks of a reopened batch into the queue."""
    await ingest.write_chunks(conn, (batch.batch_id, batch.run, tenant_id, pool_id), chunks, batch.deadline)


async def ready_chunks(conn: Connection, batch_id: int) -> dict[str, int]:
    """How many chunks of the batch may be claimed, by the model as engines serve it; at most MOST_READY in all."""
    rows = await conn.execute(queries.READY_CHUNKS, {"batch_id": batch_id, "most": MOST_READY})
    return dict(await rows.fetchall())


async def ready_chunks_of(conn: Connection, pipeline_id: int) -> dict[str, int]:
    """The same for the stages of a pipeline."""
    values = {"pipeline_id": pipeline_id, "most": MOST_READY}
    return dict(await (await conn.execute(queries.READY_CHUNKS_OF_PIPELINE, values)).fetchall())


async def stored_state(conn: Connection, tenant_id: int, request_id: UUID) -> StoredState | None:
    """The state of this tenant's batch. None: the tenant has no such batch."""
    parameters = {"tenant_id": tenant_id, "request_id": request_id}
    row = await (await conn.execute(queries.STATE, parameters)).fetchone()
    return None if row is None else StoredState(BatchState(row[0]), *row[1:])
