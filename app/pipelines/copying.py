"""Fills the input of a pipeline with the items of another batch and their results, once that is final.

The copies belong to the pipeline, which leaves as a whole whatever becomes of the other batch. They are numbered anew, in the
order of the items that have a result. The line of an item is that of its pipeline's input, else its request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from app import clock
from app.admission import quotas
from app.admission.quotas import Demand
from app.batches.validation.text_generation import ItemError
from app.db import day_tables
from app.db.pool import Connection, Database
from app.errors import NotFound
from app.flows.answers import Answer
from app.flows.items import Lineage
from app.flows.reads import Reads
from app.flows.stages import INPUT, Definition, Input
from app.pipelines import copying_sql as queries
from app.pipelines import feeding_sql, writing
from app.pipelines import running as pipelines
from app.pipelines.children import Governing
from app.pipelines.reading import Item, Reader, Seqs
from app.pipelines.running import Running, RunningStage
from app.pipelines.writing import Changed
from app.policy import vaults
from app.policy.vaults import Vaults
from app.queue import copy_format, handoff, stages
from app.queue.bodies import BatchSeal, StoredBodies
from app.states import BatchState
from app.tenants.service import Tenant

_WIDTH = 500  # numbers of the source in one transaction
_NOBODY = UUID(int=0)  # asks for the pipeline of a source that is in none


@dataclass(frozen=True, slots=True)
class Part:
    """The next part of a source. `low`, `high`: of its numbers. `count`: copies that there are. `last`: nothing comes after."""

    low: int
    high: int
    count: int
    last: bool


async def ready(database: Database, later: Sequence[int]) -> tuple[int, int, int, bool] | None:
    """A pipeline whose source is final: its id, the source, how much is copied, whether the source can be read. None: there is
    none, except perhaps those of `later`.
    """
    async with database.relaxed() as conn:
        row = await (await conn.execute(queries.READY, {"later": list(later)})).fetchone()
    return None if row is None else (row[0], row[1], row[2], bool(row[4]))


async def sample(database: Database, reader: Reader, tenant: Tenant, source_id: int, most: int) -> list[Lineage]:
    """The first items of a source that have an answer. Raises KeysUnavailable, StorageError."""
    try:
        async with database.relaxed() as conn:
            values = {"batch_id": source_id, "most": most}
            rows = await (await day_tables.execute(conn, queries.ANSWERED, source_id, values)).fetchall()
    except NotFound:
        return []
    source, stage = await _source(database, reader, tenant.tenant_id, source_id)
    items = await _items(reader, source, stage, Seqs([seq for (seq,) in rows]))
    return [Lineage(_line(item), {INPUT: Answer(ok=True, body=_answer(item).body)}) for item in items]


async def step(
    database: Database, reader: Reader, rules: Governing, running: Running, source_id: int, low: int, *, readable: bool
) -> None:
    """Copy the next part. Raises Changed, QuotaExceeded, QuotaBusy, KeysUnavailable, StorageError."""
    source, stage = await _source(database, reader, running.tenant_id, source_id)
    part = await _part(database, running, source_id if readable else None, low)
    items = await _items(reader, source, stage, Seqs(low=part.low, high=part.high)) if part.high > part.low else []
    if running.flow.limit is not None:
        items = items[: max(0, running.flow.limit - part.count)]
    seal = vault_seal = None
    if (only_vaults := running.stages[INPUT].only_vaults) is not None:
        found = await StoredBodies(database, reader.keyring, running.pipeline_id).seal()
        seal, vault_seal = (None, found) if only_vaults else (found, found)
    safe = Vaults(reader.secret, running.tenant_id)
    policy = await _policy(database, source_id) if items else None
    rows, results = [], []
    for number, item in enumerate(items, part.count):
        row, result = _copied(running, rules, number, item, safe, seal, vault_seal)
        rows.append(row)
        results.append(result)
    await _write(database, running, part, rows, results, policy)


async def _source(database: Database, reader: Reader, tenant_id: int, source_id: int) -> tuple[Running, int]:
    """The source as a stage: of its pipeline, or of one that is nothing but this batch."""
    known = await pipelines.load(database, reader.keyring, [source_id])
    if source_id in known:
        return known[source_id]
    alone = RunningStage(INPUT, source_id, None, 0, 0, 0, "", None, False, "", None, None)
    made = Running(
        pipeline_id=source_id,
        request_id=_NOBODY,
        tenant_id=tenant_id,
        account_id="",
        state=BatchState.COMPLETED,
        run=1,
        overruled=False,
        inputs=0,
        deadline=clock.now(),
        flow=Definition(Input(), ()),
        stages=(alone,),
    )
    return made, INPUT


async def _part(database: Database, running: Running, source_id: int | None, low: int) -> Part:
    count, highest = 0, None
    async with database.relaxed() as conn:
        count = await _number(conn, queries.COUNT, running.pipeline_id) or 0
        if source_id is not None:
            try:
                highest = await _number(conn, queries.HIGHEST, source_id)
            except NotFound:
                highest = None
    full = running.flow.limit is not None and count >= running.flow.limit
    if highest is None or full or highest < low:
        return Part(low, low, count, last=True)
    return Part(low, low + _WIDTH, count, last=False)


async def _policy(database: Database, source_id: int) -> Mapping[str, Any] | None:
    async with database.relaxed() as conn:
        row = await (await conn.execute(queries.POLICY, {"batch_id": source_id})).fetchone()
    return row[0] if row else None


async def _number(conn: Connection, query: str, batch_id: int) -> int | None:
    row = await (await day_tables.execute(conn, query, batch_id, {"batch_id": batch_id})).fetchone()
    return None if row is None else row[0]


async def _items(reader: Reader, source: Running, stage: int, seqs: Seqs) -> list[Item]:
    """Those of these items of the source that have a result, with their lines."""
    has_line = stage == INPUT or source.flow.stage(stage).single.line
    reads = Reads(line=True) if has_line else Reads(request=stage)
    found = await reader.items(source, stage, seqs, 1, reads)
    return [item for item in found if stage in item.lineage.answers]


def _line(item: Item) -> Mapping[str, Any]:
    """The line of a copy: that of its pipeline's input, else its request."""
    line = item.lineage.line
    return next(iter(item.lineage.requests.values()), {}) if line is None else line


def _answer(item: Item) -> Answer:
    [answer] = item.lineage.answers.values()
    return answer


def _copied(
    running: Running,
    rules: Governing,
    number: int,
    item: Item,
    safe: Vaults,
    seal: BatchSeal | None,
    vault_seal: BatchSeal | None,
) -> tuple[bytes, tuple[object, ...]]:
    """The rows of an item and its result, with one mapping of placeholders."""
    line, answer = _line(item), _answer(item)
    ok, error, vault = answer.ok, item.error, None
    try:
        both, values = rules.protected(
            running,
            INPUT,
            orjson.dumps({"line": line, "answer": orjson.loads(answer.body)}),
            item.lineage.values,
        )
        given = orjson.loads(both)
    except ItemError as refusal:
        message = {"code": 5006, "reason": "not_valid", "message": refusal.message}
        given, values, ok, error = {"line": {}, "answer": message}, {}, False, "invalid"
    body, result = orjson.dumps(given["line"]), orjson.dumps(given["answer"])
    batch_id = running.pipeline_id
    if values:
        vault = safe.sealed(values, vaults.of_item(batch_id, number))
        vault = vault if vault_seal is None else vault_seal.vault(number, vault)
    if seal is not None:
        body, result = seal.payload(number, body), seal.result(number, running.run, result)
    row = copy_format.payload_row(batch_id, number, item.reference, item.affinity, 0, body, vault=vault)
    return row, (batch_id, number, running.run, int(ok), 0, result, None if ok else error or "failed")


async def _write(
    database: Database,
    running: Running,
    part: Part,
    rows: Sequence[bytes],
    results: Sequence[tuple[object, ...]],
    policy: Mapping[str, Any] | None,
) -> None:
    """`policy`: what rules decided about the source, which holds for the copies."""
    size = sum(map(len, rows))
    count = part.count + len(rows)
    values = {
        "pipeline_id": running.pipeline_id,
        "low": part.low,
        "high": part.high,
        "last": part.last,
        "count": count,
        "bytes": size,
    }
    async with database.relaxed() as conn, conn.transaction():
        await quotas.check_free(conn, running.tenant, Demand(stored_bytes=size))
        await handoff.exclusively(conn)
        await writing.lock(conn, [running])
        if await (await conn.execute(queries.COPIED, values)).fetchone() is None:
            raise Changed
        if rows:
            await stages.copy_items(conn, [copy_format.whole(rows)])
            await conn.execute(queries.STORED, values)
            await writing.copy(conn, feeding_sql.COPY_RESULTS, feeding_sql.COPY_RESULTS_TYPES, results)
            await writing.govern(conn, running.stages[INPUT], policy)
        if part.last:
            await conn.execute(queries.COMPLETE, values)
            await handoff.add(conn, running.pipeline_id, 1, range(count), inputs=True)
