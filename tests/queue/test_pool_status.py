"""Claims about what a heartbeat tells a worker of its pool, and about the status that the steward writes."""

from collections.abc import AsyncIterator

import pytest

from app.db.pool import Connection, Database
from app.engines import service as engines
from app.engines.engine_report import EngineReport
from app.queue import heartbeat, pool_status
from app.queue.heartbeat import Heartbeat, HeartbeatAnswer
from app.states import EngineIntake
from tests.queue import support


class Fleet:
    """Workers with engines in two pools."""

    def __init__(self, database: Database, conn: Connection) -> None:
        self.database, self.conn = database, conn
        self.engines: dict[int, int] = {}

    async def create(self) -> "Fleet":
        self.tenant = await support.make_tenant(self.conn)
        self.pool, self.other = await support.make_pool(self.conn), await support.make_pool(self.conn, "other")
        return self

    async def worker(self, pool: int | None = None, lease_seconds: float = 30) -> int:
        worker = await support.make_worker(self.database, pool or self.pool, lease_seconds)
        name = f"engine-{worker}"
        taken = {"pool_id": pool or self.pool, "worker_id": worker, "name": name, "url": f"http://{name}"}
        engine = await engines.take_engine(self.conn, mode="attached", **taken)
        assert engine is not None
        self.engines[worker] = engine
        return worker

    async def beat(self, *workers: int, hungry: bool = True, in_flight: int = 0) -> dict[int, HeartbeatAnswer]:
        report = EngineReport(True, "open", 8, batch_in_flight=in_flight, hungry=hungry)
        return await heartbeat.send(self.conn, [Heartbeat(each, self.engines[each], report) for each in workers], 30)

    async def status(self, *columns: str) -> tuple[object, ...]:
        """The columns of our pool, as a steward that looks now sees them."""
        await pool_status.write(self.conn)
        asked = f"select {', '.join(columns)} from pool_status where pool_id = {self.pool}"
        row = await (await self.conn.execute(asked.encode())).fetchone()
        assert row is not None
        return tuple(row)


@pytest.fixture
async def fleet(database: Database) -> AsyncIterator[Fleet]:
    async with database.durable() as conn:
        yield await Fleet(database, conn).create()


async def test_one_statement_renews_the_leases_of_all_workers_and_answers_each_for_itself(fleet: Fleet) -> None:
    one, other, lapsed = await fleet.worker(), await fleet.worker(fleet.other), await fleet.worker(lease_seconds=-1)
    await support.submit(fleet.database, fleet.tenant, fleet.pool, 16)
    lease = await support.claim(fleet.conn, fleet.pool, one)
    assert lease is not None
    answers = await fleet.beat(one, other, lapsed)
    assert answers.keys() == {one, other}
    assert [held.chunk_id for held in answers[one].held] == [lease.chunk_id]
    assert answers[other].held == []
    assert {answer.intake for answer in answers.values()} == {EngineIntake.OPEN}


async def test_only_a_hungry_worker_hears_that_work_waits_and_only_of_its_own_pool(fleet: Fleet) -> None:
    one, other = await fleet.worker(), await fleet.worker(fleet.other)
    await support.submit(fleet.database, fleet.tenant, fleet.pool, 16)
    heard = await fleet.beat(one, other)
    assert (heard[one].work_waits, heard[other].work_waits) == (True, False)
    assert not (await fleet.beat(one, hungry=False))[one].work_waits


async def test_a_heartbeat_that_another_worker_answers_for_its_engine_says_so(fleet: Fleet) -> None:
    one, other = await fleet.worker(), await fleet.worker()
    fleet.engines[other] = fleet.engines[one]
    answers = await fleet.beat(one, other)
    assert answers[one].intake == EngineIntake.OPEN
    assert answers[other].intake is None


async def test_values_that_json_cannot_express_are_reported(fleet: Fleet) -> None:
    worker = await fleet.worker()
    report = EngineReport(True, "open", 8, "age", float("inf"), float("nan"))
    assert (await heartbeat.send(fleet.conn, [Heartbeat(worker, fleet.engines[worker], report)], 30))[worker].intake
    row = await (await fleet.conn.execute("select value, threshold::text from engine")).fetchone()
    assert row == (float("inf"), "NaN")


async def test_the_workers_of_all_pools_are_counted_also_before_a_steward_has_looked(fleet: Fleet) -> None:
    workers = [await fleet.worker(), await fleet.worker(fleet.other)]
    assert (await fleet.beat(*workers))[workers[0]].workers == 2
    await pool_status.write(fleet.conn)
    await fleet.worker()
    assert (await fleet.beat(*workers))[workers[0]].workers == 2
    await pool_status.write(fleet.conn)
    assert (await fleet.beat(*workers))[workers[0]].workers == 3


async def test_a_pool_is_scarce_while_an_engine_has_nothing_and_nothing_is_ready(fleet: Fleet) -> None:
    worker = await fleet.worker()
    await fleet.beat(worker, hungry=False)
    assert await fleet.status("workers", "engines", "scarce") == (1, 1, False)
    await fleet.beat(worker, in_flight=1)
    assert await fleet.status("scarce") == (False,)
    await fleet.beat(worker)
    assert await fleet.status("scarce") == (True,)
    assert (await fleet.beat(worker))[worker].scarce
    await support.submit(fleet.database, fleet.tenant, fleet.pool, 16)
    assert await fleet.status("scarce") == (False,)


async def test_what_the_steward_saw_more_than_a_minute_ago_is_not_believed(fleet: Fleet) -> None:
    worker = await fleet.worker()
    await fleet.beat(worker)
    await fleet.status("scarce")
    await fleet.conn.execute("update pool_status set at = now() - interval '61 seconds', slack = 0.5, workers = 99")
    lapsed = await fleet.worker()  # which only a steward would remove
    await fleet.conn.execute("update worker set lease_until = now() where worker_id = %s", (lapsed,))
    answer = (await fleet.beat(worker))[worker]
    assert (answer.scarce, answer.slack, answer.workers) == (False, None, 1)


async def test_many_deadlines_are_few_entries_and_no_token_is_lost(fleet: Fleet) -> None:
    await support.submit(fleet.database, fleet.tenant, fleet.pool, 1000, max_items=1)
    await fleet.conn.execute("update chunk set deadline = now() + make_interval(secs => 3600 + chunk_id % 600)")
    deadlines, tokens = await fleet.status("deadlines", "tokens")
    assert len(deadlines) in (10, 11)  # type: ignore[arg-type]
    assert deadlines == sorted(deadlines)  # type: ignore[call-overload]
    assert sum(tokens) == 100_000  # type: ignore[call-overload]


async def test_the_speed_of_an_engine_is_kept_after_the_last_one_has_gone(fleet: Fleet) -> None:
    workers = [await fleet.worker(), await fleet.worker()]
    await fleet.beat(*workers, in_flight=3)
    await fleet.conn.execute(
        "insert into pace (pool_id, served_tokens, tokens_per_second) values (%s, 1, 500)", [fleet.pool]
    )
    assert await fleet.status("engine_pace") == (250,)
    await fleet.conn.execute("delete from worker; delete from pace")
    assert await fleet.status("engine_pace", "engines") == (250, 0)
