"""Settles batches: adds up the counts of finished chunks, and ends the batches that are done. Verbs of the steward.

`app.batches.lifecycle` calls them and writes the events of the batches that ended.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from app.db.pool import Connection
from app.queue import errors_sql, handoff, phases
from app.queue import settling_sql as queries
from app.queue.running_batches import BatchProgress
from app.states import BatchState
from app.usage_counts import UsageCounts


@dataclass(frozen=True, slots=True)
class Settled:
    """A batch that has just become final, `seconds` after its submit or its last retry. `rules`, `diverted_to`: as of
    BatchInProgress.
    """

    batch_id: int
    request_id: UUID
    tenant_id: int
    account_id: str
    model: str
    run: int
    state: BatchState
    total: int
    ok: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    traceparent: str | None
    kind: str
    seconds: float
    rules: list[str] | None = None
    diverted_to: list[str] | None = None
    has_sessions: bool = False
    has_deadline: bool = False


@dataclass(frozen=True, slots=True)
class UsageSum:
    """What results of one hour and line used. `line_id` None: it is not known; then `tenant_id`,
    `model` and `kind` are those of the batch. `first_tokens` and `durations`: see `ChunkTimes`.
    """

    hour: datetime
    line_id: int | None
    tenant_id: int | None
    model: str | None
    kind: str | None
    counts: UsageCounts
    first_tokens: bytes
    durations: bytes


async def has_work(conn: Connection) -> bool:
    """Whether there is anything to sweep, fold or end."""
    row = await (await conn.execute(queries.HAS_WORK)).fetchone()
    return bool(row and row[0])


async def exclusively(conn: Connection) -> None:
    """Let no other transaction count results until this one ends."""
    await conn.execute(queries.ONE_AT_A_TIME)


async def settle(
    conn: Connection,
    on_fold: Callable[[BatchProgress], None] = lambda progress: None,
    before_fold: Callable[[Connection, Sequence[int]], Awaitable[None]] | None = None,
) -> tuple[list[Settled], list[UsageSum]]:
    """Add the counts of finished chunks to their batches, and end the batches that are done.

    Call inside a transaction, and in the same one write the events of the returned batches, and book the returned usage.
    `on_fold` is called with each batch whose counts changed, before that transaction commits. `before_fold` is called with the
    ids of the deltas, which are gone afterwards.
    """
    await exclusively(conn)
    deltas = await (await conn.execute(queries.TAKE)).fetchall()
    taken = {"ids": [delta_id for delta_id, *_ in deltas]}
    if any(has_errors for _, has_errors, _ in deltas):
        await conn.execute(errors_sql.FOLD, taken)
    if any(has_unrun for *_, has_unrun in deltas):
        await conn.execute(queries.UNRUN, taken)
    rows = await (await conn.execute(queries.USAGE, taken)).fetchall()
    usage = [_usage_sum(*row) for row in rows]
    if before_fold is not None and taken["ids"]:
        await before_fold(conn, taken["ids"])
    folded = [BatchProgress(*row) for row in await (await conn.execute(queries.FOLD, taken)).fetchall()]
    for progress in folded:
        on_fold(progress)
    settled = await finalise(conn, [progress.batch_id for progress in folded], ending=True)
    while closed := await handoff.close(conn):
        settled += await finalise(conn, closed)
    return settled, usage


def _usage_sum(
    hour: datetime, line_id: int | None, tenant_id: int | None, model: str | None, kind: str | None, *used: Any
) -> UsageSum:
    *counts, first_tokens, durations = used
    return UsageSum(hour, line_id, tenant_id, model, kind, UsageCounts(*counts), first_tokens, durations)


async def finalise(conn: Connection, batch_ids: list[int], *, ending: bool = False) -> list[Settled]:
    """End those of the batches that are done, and with `ending` also any that is cancelling or expiring. See `settle`."""
    rows = await (await conn.execute(queries.FINALISE, {"ids": batch_ids, "all": ending})).fetchall()
    batches = [Settled(*row) for row in rows]
    await phases.end(conn, [batch.batch_id for batch in batches])
    return [replace(batch, state=BatchState(batch.state)) for batch in batches]
