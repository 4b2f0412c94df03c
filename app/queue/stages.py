"""The batches of a pipeline as rows. `app.pipelines` decides what they are."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg.types.json import Jsonb

from app.db import day_tables
from app.db.pool import Connection
from app.queue import chunk_sweeps, submit_sql
from app.queue import stages_sql as queries
from app.queue.batch_state import ItemModel, Items, Reopened, by_model
from app.queue.types import Kind
from app.states import BatchState


@dataclass(frozen=True, slots=True)
class StageBatch:
    """A batch of a pipeline that is to be stored. `parent_id`: None for the input. `total`: items that it has from the beginning.
    `feeds`: it has children. `fed`: it gets more items. `line_id`, `policy`: see NewBatch.
    """

    batch_id: int
    request_id: UUID
    tenant_id: int
    pipeline_id: int
    parent_id: int | None
    model: str
    endpoint: str
    deadline_seconds: float
    expires: bool
    feeds: bool
    fed: bool
    state: BatchState = BatchState.OPEN
    total: int = 0
    bytes: int = 0
    kind: Kind = Kind.STAGE
    line_id: int | None = None
    policy: Mapping[str, object] | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, str] | None = None
    name: str | None = None
    correlation_id: str | None = None
    traceparent: str | None = None


async def add(conn: Connection, batch: StageBatch) -> None:
    """Insert a batch of a pipeline. One in a final state has ended already."""
    columns = {name: getattr(batch, name) for name in batch.__slots__}
    columns |= {"final": batch.state == BatchState.COMPLETED, "tags": list(batch.tags), "meta": columns.pop("metadata")}
    for name in ("meta", "policy"):
        columns[name] = None if columns[name] is None else Jsonb(dict(columns[name]))
    await conn.execute(queries.ADD, columns)


async def adopt(conn: Connection, batch_id: int, kind: Kind) -> tuple[int, int]:
    """Make a new batch, which runs, the input of a pipeline of the same id. Returns its total and its run."""
    row = await (await conn.execute(queries.ADOPT, {"batch_id": batch_id, "kind": kind})).fetchone()
    assert row is not None
    return row[0], row[1]


async def copy_items(conn: Connection, blocks: Iterable[bytes]) -> None:
    """Insert items: blocks of binary COPY data, header and trailer included."""
    async with conn.cursor() as cursor, cursor.copy(submit_sql.COPY_PAYLOAD) as copy:
        for block in blocks:
            await copy.write(block)


async def awake(conn: Connection, pipeline_ids: Sequence[int]) -> list[int]:
    """Start stages of these pipelines whose dependencies have all ended. Returns their batches."""
    rows = await (await conn.execute(queries.AWAKE, {"pipeline_ids": list(pipeline_ids)})).fetchall()
    return [batch_id for (batch_id,) in rows]


async def follow(conn: Connection, verb: str, pipeline_id: int) -> list[int]:
    """Move the batches of a pipeline, and their chunks, by a verb on it. Call in its transaction, with the pipeline locked.
    Returns the batches that moved.
    """
    rows = await (await conn.execute(queries.follow(verb), {"pipeline_id": pipeline_id})).fetchall()
    moved = sorted(batch_id for (batch_id,) in rows)
    for batch_id in moved:
        await chunk_sweeps.sweep_batch(conn, batch_id)
    return moved


async def cancel_all(conn: Connection, tenant_id: int) -> None:
    """Cancel all pipelines of an account that is being deleted. Call in a transaction."""
    rows = await (await conn.execute(queries.CANCEL_ALL, {"tenant_id": tenant_id})).fetchall()
    for (pipeline_id,) in sorted(rows):
        await follow(conn, "cancel", pipeline_id)


@dataclass(frozen=True, slots=True)
class Child:
    """Which numbers of a child come from an item: `times` of them, from number * `times` / `part` on."""

    batch_id: int
    times: int
    part: int


async def again(conn: Connection, batch_id: int, children: Sequence[Child]) -> dict[ItemModel, Items]:
    """The requests that may run again, by model: without an answer, and with nothing made from them."""
    values = {
        "batch_id": batch_id,
        "children": [child.batch_id for child in children],
        "times": [child.times for child in children],
        "parts": [child.part for child in children],
    }
    rows = await (await day_tables.execute(conn, queries.AGAIN, batch_id, values)).fetchall()
    return by_model(rows)


async def reopen(
    conn: Connection, batch_id: int, run: int, again: Sequence[int], *, state: BatchState, feeds: bool, fed: bool
) -> Reopened:
    """Begin run number `run` of a final batch: the items `again` have no result in it; errors of others stay."""
    values = {"batch_id": batch_id, "run": run - 1, "again": list(again)}
    kept = (await day_tables.execute(conn, queries.KEEP_ERRORS, batch_id, values)).rowcount
    values = {"batch_id": batch_id, "run": run, "failed": kept, "state": state, "feeds": feeds, "fed": fed}
    row = await (await conn.execute(queries.REOPEN, values)).fetchone()
    assert row is not None
    return Reopened(*row)


async def feed_again(conn: Connection, batch_id: int) -> None:
    """Hand on results of a batch that stays final."""
    await conn.execute(queries.FEED_AGAIN, {"batch_id": batch_id})


async def feed_no_more(conn: Connection, pipeline_ids: Sequence[int]) -> None:
    """Hand nothing more on in pipelines that have ended."""
    await conn.execute(queries.FEED_NO_MORE, {"pipeline_ids": list(pipeline_ids)})
