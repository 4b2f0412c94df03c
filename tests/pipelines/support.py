"""Pipelines as rows, and steps of whatever moves them, for tests."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from app.admission.control import AdmissionControl
from app.batches import lifecycle
from app.db.pool import Database
from app.flows.stages import Definition
from app.metering import reports
from app.pipelines import creation, stored_flow, verbs
from app.pipelines.creation import Lines, NewPipeline, NewStage
from app.pipelines.feeding import Feeder
from app.queue import chunk_sweeps, copy_format, ingest, service, stages
from app.queue.types import Item, Lease, Result
from app.settings import Settings
from tests.flows import recomputation
from tests.flows.pipelines import Json, completion
from tests.flows.recomputation import Level, Place, Stored
from tests.flows.runs import answer
from tests.queue import support

MODELS = """
[models.small]
task = "text-generation"
context_window = 8192
default_max_tokens = 16
shape = "openai"
capabilities = ["async_queue", "json_mode"]

[models.large]
task = "text-generation"
context_window = 8192
default_max_tokens = 16
shape = "openai"
capabilities = ["async_queue", "json_mode"]
"""


SURE = orjson.dumps(completion('{"sure": true}'))


def with_models(settings: Settings, folder: Path) -> Settings:
    """The settings with the models that test pipelines name. Packs of them have few items in a chunk."""
    file = folder / "models.toml"
    file.write_text(MODELS)
    return settings.model_copy(update={"models_file": file, "chunk_items": 4})


@dataclass(frozen=True)
class Made:
    """A pipeline in the database. `batches`: by stage."""

    tenant: int
    request_id: uuid.UUID
    pipeline_id: int
    definition: Json
    flow: Definition
    batches: tuple[int, ...]
    lines: Sequence[Json]


async def create(database: Database, tenant: int, definition: Json, lines: Sequence[Json], **more: Any) -> Made:
    """Store a pipeline with these lines as its input."""
    stored = stored_flow.of_definition(definition)
    flow, request_id = stored_flow.read(stored), uuid.uuid4()
    async with database.transaction() as conn:
        ids = await ingest.next_batch_ids(conn, len(flow.stages) + 1)
        made = [NewStage(batch_id, uuid.uuid4()) for batch_id in ids[1:]]
        new = replace(NewPipeline(ids[0], request_id, tenant, flow, stored, made, 86_400), **more)
        rows = [
            copy_format.payload_row(ids[0], n, f"line-{n}", None, 0, orjson.dumps(line)) for n, line in enumerate(lines)
        ]
        assert await creation.create(conn, new, Lines(len(lines), [copy_format.HEADER, *rows, copy_format.TRAILER]))
    return Made(tenant, request_id, ids[0], definition, flow, tuple(ids), lines)


class World:
    """Whatever moves the pipelines of one database, a step at a time."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.database = database
        self.feeder = Feeder(database, settings, AdmissionControl.of(database, settings))
        self.workers: dict[int, int] = {}  # by pool
        self.failing: set[Place] | None = None  # which items fail; None: those that `answer` says

    async def feed(self) -> None:
        """Hand on all that can be."""
        while await self.feeder.step():
            pass

    async def work(self, made: Mapping[int, int], most: int = 10_000) -> int:
        """Run queued chunks as workers do. `made`: of each batch the number of its stage. Returns the number of chunks."""
        chunks = 0
        while chunks < most and (leased := await self.claim()) is not None:
            await self.run(leased, made)
            chunks += 1
        return chunks

    async def claim(self) -> Lease | None:
        """The next chunk of any pool."""
        async with self.database.durable() as conn:
            rows = await (await conn.execute("select pool_id from pool order by pool_id")).fetchall()
        for (pool_id,) in rows:
            if pool_id not in self.workers:
                self.workers[pool_id] = await support.make_worker(self.database, pool_id, lease_seconds=600)
            async with self.database.relaxed() as conn:
                if (lease := await support.claim(conn, pool_id, self.workers[pool_id])) is not None:
                    return lease
        return None

    async def run(self, lease: Lease, made: Mapping[int, int], flushes: int = 2) -> None:
        """Load, flush and finish a chunk, with results that depend on the item alone, unless the lease is lost."""
        async with self.database.durable() as conn:
            items = await service.load(conn, lease)
            results = [self.result(made[lease.batch_id], item) for item in items]
            feeds = any(item.feeds for item in items)
            cut = max(1, len(results) // flushes)
            for low in range(0, len(results), cut):
                if not await service.flush(conn, lease, results[low : low + cut], feeds=feeds):
                    return
            await service.finish(conn, lease)

    def result(self, stage: int, item: Item) -> Result:
        """What an engine answers to this item, whenever it is asked."""
        found = answer(stage, item.seq)
        if self.failing is not None:
            ok = (stage, item.seq) not in self.failing
            found = Stored(ok, SURE if ok else b'{"code":5001,"message":"the engine failed"}')
        return Result(item.seq, found.ok, 1, 3, 1, 5, found.body, error=None if found.ok else "engine")

    async def settle(self) -> list[verbs.Ended]:
        """A round of the steward: sweep, fold, finalise, close, and end pipelines."""
        async with self.database.relaxed() as conn:
            await chunk_sweeps.sweep(conn)
        async with self.database.transaction() as conn:
            await lifecycle.settle(conn)
        async with self.database.transaction() as conn:
            found = await verbs.unfinished(conn)
            ended = await verbs.end(conn, found)
            await stages.awake(conn, found)
        return ended

    async def finish(self, *pipelines: Made) -> list[verbs.Ended]:
        """Run everything until nothing moves. Returns the pipelines that ended."""
        made = {batch_id: n for each in pipelines for n, batch_id in enumerate(each.batches)}
        ended: list[verbs.Ended] = []
        for _ in range(200):
            await self.feed()
            await self.work(made)
            ended += await self.settle()
            if len(ended) >= len(pipelines):
                return ended
        raise AssertionError("the pipelines do not end")


async def check_ledger(database: Database) -> None:
    """The ledger has each answer and each error of an engine once, and nothing else."""
    query = """select (select count(*) from item_result r join item_payload p using (batch_id, seq) where p.est_tokens > 0)::int,
      (select coalesce(sum(requests), 0) from usage)::int"""
    async with database.relaxed() as conn:
        assert await reports.check(conn) == []
        [(results, booked)] = await (await conn.execute(query)).fetchall()
    assert booked == results


async def batches(database: Database, made: Made) -> list[tuple[int, int, int]]:
    """Of each stage: total, ok, failed."""
    query = """select b.total, b.ok, b.failed from stage s join batch b using (batch_id) where s.pipeline_id = %s order by s.n"""
    async with database.relaxed() as conn:
        return [tuple(row) for row in await (await conn.execute(query, (made.pipeline_id,))).fetchall()]


async def stored_results(database: Database, made: Made) -> dict[Place, Stored]:
    """The results of items that ran, by stage and number."""
    query = """select s.n, r.seq, r.ok, r.body from stage s join item_result r using (batch_id)
      join item_payload p using (batch_id, seq)
      where s.pipeline_id = %s and p.est_tokens > 0 order by r.ok, r.run desc"""
    async with database.relaxed() as conn:
        rows = await (await conn.execute(query, (made.pipeline_id,))).fetchall()
    return {(n, seq): Stored(ok == 1, bytes(body)) for n, seq, ok, body in rows}


async def levels(database: Database, made: Made, capped: Sequence[Place] = ()) -> list[Level]:
    """What a recomputation says that the stages have, from the results that are stored."""
    return recomputation.recompute(made.flow, made.lines, await stored_results(database, made), capped)


async def items(database: Database, made: Made) -> list[dict[int, tuple[bool, bytes, int | None, bytes | None]]]:
    """By stage and number, what is stored: whether it was asked, the request, and of its result `ok` and the body."""
    query = """select s.n, p.seq, p.est_tokens > 0, p.body, r.ok, r.body from stage s join item_payload p using (batch_id)
      left join lateral (select ok, body from item_result where batch_id = p.batch_id and seq = p.seq
                         order by ok desc, run desc limit 1) r on true
      where s.pipeline_id = %s"""
    found: list[dict[int, tuple[bool, bytes, int | None, bytes | None]]] = [{} for _ in made.batches]
    async with database.relaxed() as conn:
        for n, seq, asked, body, ok, result in await (await conn.execute(query, (made.pipeline_id,))).fetchall():
            assert seq not in found[n]
            found[n][seq] = asked, bytes(body), ok, None if result is None else bytes(result)
    return found
