"""Insert a batch into the queue: one short transaction, bulk rows by binary COPY."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from uuid import UUID

from psycopg.types.json import Jsonb

from app.db.pool import Connection
from app.queue import ready_counts
from app.queue import submit_sql as queries
from app.queue.chunking import NewChunk
from app.queue.types import Kind
from app.states import ChunkState


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch to be inserted, without its items. `expires`: items that are not done by the deadline are given up. `open_ended`:
    an answer without a limit may use the rest of the context. `tells_items`: every result writes an event. `line_id`: see
    `app.metering.lines`. `bytes`: of its items' bodies. `policy`: what rules decided about it. `model_lines`: of each of
    its models, if there are several. `has_sessions`: some of its items belong to sessions.
    `name`: for people; None: none. `est_tokens`: of all its items; None: not known.
    """

    batch_id: int
    request_id: UUID
    tenant_id: int
    pool_id: int
    model: str
    endpoint: str
    total: int
    deadline_seconds: float
    expires: bool = False
    correlation_id: str | None = None
    traceparent: str | None = None
    affinity: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, str] | None = None
    idempotency_key: str | None = None
    request_hash: bytes | None = None
    tells_items: bool = False
    kind: Kind = Kind.BATCH
    open_ended: bool = False
    line_id: int | None = None
    bytes: int = 0
    policy: Mapping[str, object] | None = None
    model_lines: tuple[int, ...] | None = None
    has_sessions: bool = False
    name: str | None = None
    est_tokens: int | None = None


async def next_batch_id(conn: Connection) -> int:
    """Reserve an id before the body is read, so that rows can be encoded while they arrive. Gaps are harmless."""
    row = await (await conn.execute(queries.NEXT_BATCH_ID)).fetchone()
    assert row is not None
    return int(row[0])


async def next_batch_ids(conn: Connection, count: int) -> list[int]:
    """Reserve ids of one day."""
    return [row[0] for row in await (await conn.execute(queries.NEXT_BATCH_IDS, {"count": count})).fetchall()]


async def enqueue(
    conn: Connection,
    batch: NewBatch,
    payload: Iterable[bytes],
    chunks: Sequence[NewChunk],
    elsewhere: Mapping[int, Sequence[NewChunk]] = MappingProxyType({}),
) -> int | None:
    """Insert a batch, its payload and its chunks, and give its account a place in the fair order.

    `payload`: blocks of binary COPY data, header and trailer included. `elsewhere`: chunks for further pools, by pool. Call
    inside a durable transaction. Returns the run. None: the tenant has used the idempotency key before; nothing was inserted.
    """
    row = await (await conn.execute(queries.INSERT_BATCH, _columns(batch))).fetchone()
    if row is None:
        return None
    run, deadline = row
    async with conn.cursor() as cursor, cursor.copy(queries.COPY_PAYLOAD) as copy:
        for block in payload:
            await copy.write(block)
    for pool_id, part in {batch.pool_id: chunks, **elsewhere}.items():
        await write_chunks(conn, (batch.batch_id, run, batch.tenant_id, pool_id), part, deadline)
    return int(run)


def _columns(batch: NewBatch) -> dict[str, object]:
    return {
        "batch_id": batch.batch_id,
        "request_id": batch.request_id,
        "tenant_id": batch.tenant_id,
        "model": batch.model,
        "endpoint": batch.endpoint,
        "total": batch.total,
        "deadline_seconds": batch.deadline_seconds,
        "expires": batch.expires,
        "correlation_id": batch.correlation_id,
        "traceparent": batch.traceparent,
        "affinity": batch.affinity,
        "tags": list(batch.tags),
        "meta": None if batch.metadata is None else Jsonb(dict(batch.metadata)),
        "idempotency_key": batch.idempotency_key,
        "request_hash": batch.request_hash,
        "tells_items": batch.tells_items,
        "kind": batch.kind,
        "open_ended": batch.open_ended,
        "line_id": batch.line_id,
        "bytes": batch.bytes,
        "has_sessions": batch.has_sessions,
        "model_lines": None if batch.model_lines is None else list(batch.model_lines),
        "policy": None if batch.policy is None else Jsonb(dict(batch.policy)),
        "name": batch.name,
        "est_tokens": batch.est_tokens,
    }


async def write_chunks(
    conn: Connection, owner: tuple[int, int, int, int], chunks: Sequence[NewChunk], deadline: datetime
) -> None:
    """Insert chunks of a batch: ready ones, and those under budgets as unreserved. `owner`: batch, run, tenant, pool. Call
    inside a transaction.
    """
    _, _, tenant_id, pool_id = owner
    ready, unreserved = [c for c in chunks if c.most is None], [c for c in chunks if c.most is not None]
    if ready:
        await _copy(conn, queries.COPY_CHUNKS, queries.COPY_CHUNKS_TYPES, (_row(owner, c, deadline) for c in ready))
    if unreserved:
        rows = ((*_row(owner, c, deadline), ChunkState.UNRESERVED, *_most(c)) for c in unreserved)
        await _copy(conn, queries.COPY_UNRESERVED, queries.COPY_UNRESERVED_TYPES, rows)
    # COPY does not tell the chunks' ids.
    ready_counts.of(conn).add(pool_id, tenant_id, len(ready), (deadline, 0) if ready else None)


async def _copy(conn: Connection, query: str, types: Sequence[str], rows: Iterable[tuple[object, ...]]) -> None:
    async with conn.cursor() as cursor, cursor.copy(query) as copy:
        copy.set_types(types)
        for row in rows:
            await copy.write_row(row)


def _row(owner: tuple[int, int, int, int], part: NewChunk, deadline: datetime) -> tuple[object, ...]:
    return (*owner, part.lo, part.hi, part.seqs, part.n, part.est_tokens, deadline, part.line_id)


def _most(part: NewChunk) -> tuple[object, ...]:
    assert part.most is not None
    most = part.most
    return list(most.budgets), most.maximum_cost, most.maximum_tokens, most.expected_cost, most.expected_tokens


async def reserve_key(conn: Connection, tenant_id: int, idempotency_key: str) -> bool:
    """Reserve the key until the transaction ends. False: another submit with this key is being written now."""
    parameters = {"tenant_id": tenant_id, "idempotency_key": idempotency_key}
    row = await (await conn.execute(queries.TRY_KEY, parameters)).fetchone()
    return bool(row and row[0])


async def find_key(conn: Connection, tenant_id: int, idempotency_key: str) -> tuple[UUID, bytes] | None:
    """The request id and the request hash of the batch with this key."""
    parameters = {"tenant_id": tenant_id, "idempotency_key": idempotency_key}
    row = await (await conn.execute(queries.FIND_KEY, parameters)).fetchone()
    return None if row is None else (row[0], row[1])
