"""Claims about the heartbeats of a process: what is stored with them, and how often."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from app import clock
from app.db.pool import Connection, Database
from app.engines import service as engines
from app.engines.engine_report import EngineReport
from app.queue.heartbeat import Heartbeat, HeartbeatAnswer
from app.states import EngineIntake
from tests.queue import support
from workers.gpu.heartbeats import REPORT_SECONDS, Heartbeats

IDLE = EngineReport(True, "open", 8, hungry=True)


class Process:
    """A worker process with one engine."""

    def __init__(self, database: Database, conn: Connection, pool: int) -> None:
        self.heartbeats = Heartbeats(database, every_seconds=1, lease_seconds=30)
        self.database, self.conn, self.pool = database, conn, pool

    async def join(self) -> "Process":
        self.worker = await support.make_worker(self.database, self.pool)
        engine = await engines.take_engine(
            self.conn, pool_id=self.pool, worker_id=self.worker, name="e", url="http://e", mode="attached", slots=8
        )
        assert engine is not None
        self.engine = engine
        return self

    async def beat(self, report: EngineReport = IDLE) -> HeartbeatAnswer | None:
        return await self.heartbeats.send(Heartbeat(self.worker, self.engine, report))

    async def stored(self) -> tuple[object, ...]:
        """When the engine was reported, what was reported, and when the worker's lease was renewed."""
        query = """select e.heartbeat_at, e.state, e.reason, e.allowance, w.renewed_at
                   from engine e join worker w using (worker_id)"""
        row = await (await self.conn.execute(query)).fetchone()
        assert row is not None
        return tuple(row)


@pytest.fixture
async def process(database: Database) -> AsyncIterator[Process]:
    async with database.durable() as conn:
        yield await Process(database, conn, await support.make_pool(conn)).join()


async def test_a_report_without_news_renews_the_lease_and_leaves_the_engine_as_it_is(process: Process) -> None:
    first = await process.beat()
    before = await process.stored()
    second = await process.beat()
    after = await process.stored()
    assert first == second
    assert first is not None
    assert first.intake == EngineIntake.OPEN
    assert after[:4] == before[:4]
    assert after[4] != before[4]


async def test_news_are_stored_at_once(process: Process) -> None:
    await process.beat()
    await process.beat(replace(IDLE, ready=False, reason="down", allowance=0))
    assert (await process.stored())[1:4] == ("down", "down", 0)
    await process.beat()
    assert (await process.stored())[1:4] == ("ready", "open", 8)


async def test_what_has_not_changed_is_stored_again_after_some_time(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await process.beat()
    before = await process.stored()
    now = clock.monotonic() + REPORT_SECONDS
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    await process.beat()
    assert (await process.stored())[0] != before[0]


async def test_an_operator_who_drains_an_engine_is_heard_without_news(process: Process) -> None:
    await process.beat()
    await process.conn.execute("update engine set intake = 'draining'")
    answer = await process.beat()
    assert answer is not None
    assert answer.intake == EngineIntake.DRAINING


async def test_a_worker_that_has_lost_its_engine_hears_so_and_reports_it_anew_when_it_has_it_again(
    process: Process,
) -> None:
    await process.beat()
    await process.conn.execute("update engine set worker_id = null, state = 'down'")
    answer = await process.beat()
    assert answer is not None
    assert answer.intake is None
    await process.beat()  # stand-by
    await process.conn.execute("update engine set worker_id = %s", [process.worker])
    answer = await process.beat()
    assert answer is not None
    assert answer.intake == EngineIntake.OPEN
    assert (await process.stored())[1] == "ready"


async def test_a_process_that_ends_leaves_no_heartbeat_behind(process: Process) -> None:
    beat = asyncio.create_task(process.beat())
    await asyncio.sleep(0)
    beat.cancel()  # its worker has ended
    assert _sent()
    await process.heartbeats.close()
    assert not _sent()


def _sent() -> list[str]:
    """The heartbeats that are on their way."""
    return [name for task in asyncio.all_tasks() if "_send_all" in (name := repr(task.get_coro()))]
