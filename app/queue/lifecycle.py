"""What a caller does to a whole batch: pause, resume, cancel, retry. Call each inside one durable transaction.

The batch's state changes first, then its chunks are swept; what slips through between two snapshots, the steward's sweeps
catch. Items in an engine end within a heartbeat: its answer tells the worker.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from app.db.pool import Connection
from app.queue import ingest, maintenance
from app.queue import maintenance_sql as queries
from app.queue.chunking import Cut
from app.states import BatchState


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a batch stands, without what its open chunks have done."""

    state: BatchState
    run: int
    ok: int
    failed: int
    total: int


@dataclass(frozen=True, slots=True)
class Reopened:
    """A batch that runs again, as `run`."""

    batch_id: int
    run: int
    model: str
    deadline: datetime
    traceparent: str | None


async def halt(conn: Connection, verb: str, tenant_id: int, request_id: UUID) -> int | None:
    """`pause`, `resume` or `cancel` a batch and its queued chunks. Returns its id; None: unknown, or not in a state for it."""
    parameters = {"tenant_id": tenant_id, "request_id": request_id}
    row = await (await conn.execute(queries.halt(verb), parameters)).fetchone()
    if row is None:
        return None
    await maintenance.sweep(conn, row[0])
    return int(row[0])


async def reopen(conn: Connection, tenant_id: int, request_id: UUID, of_run: int | None) -> Reopened | None:
    """Begin a new run of a final batch that has unanswered items.

    None: unknown, not final, all are answered, or `of_run` is not its run (any more).
    """
    parameters = {"tenant_id": tenant_id, "request_id": request_id, "of_run": of_run}
    row = await (await conn.execute(queries.REOPEN, parameters)).fetchone()
    return None if row is None else Reopened(*row)


async def unanswered(conn: Connection, batch_id: int) -> dict[str | None, tuple[list[int], list[int]]]:
    """(seqs, estimated tokens) of the items that no run of the batch has answered, by model; None: the batch's."""
    rows = await (await conn.execute(queries.UNANSWERED, {"batch_id": batch_id})).fetchall()
    found: dict[str | None, tuple[list[int], list[int]]] = {}
    for seq, tokens, model in rows:
        seqs, est_tokens = found.setdefault(model, ([], []))
        seqs.append(seq)
        est_tokens.append(tokens)
    return found


async def requeue(conn: Connection, batch: Reopened, tenant_id: int, pool_id: int, cuts: Sequence[Cut]) -> None:
    """Put items of a reopened batch into the queue."""
    await ingest.write_chunks(conn, (batch.batch_id, batch.run, tenant_id, pool_id), cuts, batch.deadline)


async def standing(conn: Connection, tenant_id: int, request_id: UUID) -> Standing | None:
    """The batch of this tenant; None: there is none."""
    parameters = {"tenant_id": tenant_id, "request_id": request_id}
    row = await (await conn.execute(queries.STATE, parameters)).fetchone()
    return None if row is None else Standing(BatchState(row[0]), *row[1:])
