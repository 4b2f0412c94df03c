"""The batches in progress: those of which a worker holds a chunk."""

from dataclasses import dataclass
from uuid import UUID

from app.db.pool import Connection
from app.queue import running_batches_sql as queries


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """An unfinished batch, and how many of its items are counted as done."""

    batch_id: int
    run: int
    request_id: UUID
    model: str
    total: int
    ok: int
    failed: int
    kind: str

    @property
    def done(self) -> int:
        """Items with a result."""
        return self.ok + self.failed


@dataclass(frozen=True, slots=True)
class BatchInProgress:
    """A batch with live counts. `late`: at the pool's pace it will expire before it is done. `rules`: of the policy, which
    chose its model; None: none did. `diverted_to`: models to which the policy moved waiting items; None: none.
    """

    tenant_id: int
    account_id: str
    batch_id: int
    run: int
    request_id: UUID
    model: str
    traceparent: str | None
    total: int
    ok: int
    failed: int
    late: bool
    rules: list[str] | None = None
    diverted_to: list[str] | None = None


async def in_progress(conn: Connection, tenant_ids: list[int]) -> list[BatchInProgress]:
    """The batches of these tenants that are in progress, without single requests."""
    rows = await (await conn.execute(queries.IN_PROGRESS, {"tenant_ids": tenant_ids})).fetchall()
    return [BatchInProgress(*row) for row in rows]


async def running(conn: Connection) -> list[BatchProgress]:
    """All batches in progress, with the counts of their finished chunks."""
    return [BatchProgress(*row) for row in await (await conn.execute(queries.RUNNING)).fetchall()]
