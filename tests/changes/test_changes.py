"""Claims about the timeline of the installation: who writes what, in which transaction, and how much is kept."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from psycopg import OperationalError
from psycopg.errors import ForeignKeyViolation

from app import clock
from app.batches import incidents
from app.changes import kinds, service
from app.changes.kinds import ChangeKind
from app.changes.service import ChangePosition
from app.db.pool import Connection, Database
from app.engines import service as engines
from app.engines.engine_report import Facts
from app.headroom import decision_log
from app.headroom.decision_log import AllowanceChange
from app.queue import reaping
from app.settings import Settings
from app.tasks.producer import Hints
from tests.queue import support
from workers.steward import __main__ as steward
from workers.steward.outage import Outage
from workers.steward.rounds import Rounds

CHANGE = AllowanceChange("l1", 8, 0, "open", "closed_stale", "age_seconds", 2.5, 2.0, 3, 0, "refused")


async def seen(conn: Connection, **filters: object) -> list[tuple[str, str]]:
    """(kind, subject) of the changes, the oldest first."""
    found = await service.page(conn, limit=100, **filters)  # type: ignore[arg-type]
    return [(each.kind, each.subject) for each in reversed(found)]


async def test_an_engine_that_dies_and_comes_back_with_another_version_writes_three_changes(database: Database) -> None:
    async with database.durable() as conn:
        pool = await support.make_pool(conn)
        worker = await support.make_worker(database, pool)
        engine = await engines.take_engine(
            conn, pool_id=pool, worker_id=worker, name="e", url="http://e", mode="attached"
        )
        assert engine is not None
        old, new = Facts(version="0.31.0"), Facts(version="0.32.0")
        for ready, reason, facts in (
            *((True, "open", old), (True, "open", old)),
            *((False, "engine_down", old), (False, "engine_down", old)),
            (True, "open", new),
        ):
            given = {"ready": ready, "reason": reason, "allowance": 0, "facts": facts}
            assert await support.report_engine(conn, engine, worker, **given)  # type: ignore[arg-type]
        assert await seen(conn) == [
            ("engine.ready", "e"),
            ("engine.down", "e"),
            ("engine.ready", "e"),
            ("engine.version", "e"),
        ]
        down = (await service.page(conn, kinds=["engine.down"], limit=1))[0]
        assert down.data["reason"] == "engine_down"
        assert down.data["engine"] == "e"


async def test_another_engine_under_the_name_of_one_is_a_change_and_the_same_one_again_is_none(
    database: Database,
) -> None:
    async with database.durable() as conn:
        pool, other = await support.make_pool(conn), await support.make_pool(conn, "other")
        for serves, mode in ((pool, "managed"), (pool, "managed"), (other, "attached"), (other, "attached")):
            worker = await support.make_worker(database, serves)
            taken = await engines.take_engine(
                conn, pool_id=serves, worker_id=worker, name="e", url="http://e", mode=mode
            )
            assert taken is not None
            await engines.release_engine(conn, taken, worker)
        [found] = await service.page(conn, kinds=["engine.replaced"], limit=9)
    assert (found.subject, found.data["from"], found.data["to"], found.data["mode"]) == (
        "e",
        "toy",
        "other",
        "attached",
    )
    assert kinds.sentence(found.kind, found.subject, found.data) == "e is another engine now, which serves other"


async def test_a_worker_that_no_longer_controls_the_engine_writes_no_change(database: Database) -> None:
    async with database.durable() as conn:
        pool = await support.make_pool(conn)
        worker = await support.make_engine(conn, database, pool)
        before = await seen(conn)
        assert await support.report_engine(conn, 1, worker + 1, ready=False, reason="engine_down", allowance=0) is None
        assert await seen(conn) == before


async def test_a_release_and_a_drain_are_changes_and_their_repetition_is_not(database: Database) -> None:
    async with database.durable() as conn:
        pool = await support.make_pool(conn)
        worker = await support.make_engine(conn, database, pool)
        for verb in ("drain", "drain", "undrain"):
            assert await engines.change_intake(conn, "e", verb)  # type: ignore[arg-type]
        for _ in range(2):
            await engines.release_engine(conn, 1, worker)
        kinds_seen = [kind for kind, _ in await seen(conn)]
    assert kinds_seen == ["engine.ready", "engine.drained", "engine.undrained", "engine.released"]


@pytest.mark.parametrize(
    ("ended", "why"), [(4, "did not report for 34 s"), (-4, "did not get its lease renewed in time")]
)
async def test_a_worker_that_only_lost_its_lease_is_not_said_to_have_stopped(
    database: Database, ended: int, why: str
) -> None:
    async with database.durable() as conn:
        pool = await support.make_pool(conn)
        worker = await support.make_engine(conn, database, pool)
        lease = "lease_until = now() - make_interval(secs => %s)"
        await conn.execute(f"update worker set renewed_at = now() - interval '34 seconds', {lease}".encode(), [ended])
        await engines.release_engine(conn, 1, worker, lapsed=True)
        [released] = await incidents.timeline(conn, limit=1)
    assert released.kind == "engine.released"
    assert released.message == f"the worker of e {why}, so its lease ended; it goes on and joins again"


async def test_a_lost_worker_is_told_with_its_engine_or_as_one_on_its_host(database: Database) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
        await support.submit(database, tenant, pool, 80)
        for worker in (await support.make_engine(conn, database, pool), await support.make_worker(database, pool)):
            assert await support.claim(conn, pool, worker)
        silent = "renewed_at = now() - interval '34 seconds', lease_until = now() - interval '4 seconds'"
        await conn.execute(f"update worker set {silent}")
        assert (await reaping.reap(conn))[0] == 2
        told = {each.message for each in await incidents.timeline(conn, only_trouble=True)}
        hidden = {each.message for each in await incidents.timeline(conn, only_trouble=True, tenant_id=tenant)}
    rest = "did not report for 34 s, so its lease ended; its chunk goes back to the queue"
    assert told == {f"the worker of e {rest}", f"a worker on host test {rest}"}
    assert hidden == {f"the worker of e {rest}", f"a worker on a machine {rest}"}


async def test_only_failures_that_close_the_gate_are_changes(database: Database) -> None:
    full = replace(CHANGE, reason="closed_slots", signal="load", detail=None)
    back = replace(CHANGE, was_reason="closed_stale", reason="open", detail=None)
    now = clock.monotonic()
    async with database.durable() as conn:
        await decision_log.record(conn, 1, [(now - 60, full), (now - 50, CHANGE), (now, back)], engine="east-1")
        assert await seen(conn) == [("gate.closed", "east-1"), ("gate.opened", "east-1")]
        closed = (await service.page(conn, kinds=["gate.closed"], limit=1))[0]
        assert (closed.data["reason"], closed.data["value"], closed.data["detail"]) == ("closed_stale", 2.5, "refused")
        assert clock.now() - closed.at > timedelta(seconds=49)


async def test_a_lost_worker_is_a_change_about_its_engine(database: Database) -> None:
    async with database.durable() as conn:
        pool = await support.make_pool(conn)
        worker = await support.make_engine(conn, database, pool)
        await conn.execute("update worker set lease_until = now() - interval '1 minute'")
        assert await reaping.reap(conn) == (1, 0)
        [lost] = await service.page(conn, kinds=["worker.lost"], limit=10)
    assert (lost.subject, lost.data["worker"], lost.data["host"]) == ("e", worker, "test")
    assert incidents.incident(lost).message.endswith("so its lease ended"), "it had no chunk that could go back"


async def test_a_lost_worker_whose_engine_another_has_taken_is_one_change_about_that_engine(database: Database) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
        await support.submit(database, tenant, pool, 4)
        lost = await support.make_engine(conn, database, pool)
        assert await support.claim(conn, pool, lost)
        await conn.execute("update worker set lease_until = now() - interval '1 minute'")
        await support.make_engine(conn, database, pool)
        assert await reaping.reap(conn) == (1, 1)
        found = await service.page(conn, limit=10)
    assert [(each.kind, each.subject) for each in reversed(found)] == [
        ("engine.ready", "e"),
        ("worker.lost", "e"),
        ("engine.ready", "e"),
    ]
    assert (found[1].data["worker"], found[1].data["chunks"], len(found[1].data["batches"])) == (lost, 1, 1)


async def test_a_loss_that_steward_and_next_worker_meet_at_the_same_moment_is_one_change(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    slow = reaping.queries.REAP.replace(
        "where worker_id = any", "where pg_advisory_xact_lock(77) is not null and worker_id = any", 1
    )
    monkeypatch.setattr(reaping.queries, "REAP", slow)

    async def reap() -> None:
        async with database.durable() as conn:
            await reaping.reap(conn)

    async with database.durable() as conn:
        pool = await support.make_pool(conn)
        await support.make_engine(conn, database, pool)
        await conn.execute("update worker set lease_until = now() - interval '1 minute'")
        await conn.execute("select pg_advisory_lock(77)")
        steward = asyncio.create_task(reap())
        while (await (await conn.execute(waits)).fetchone()) != (1,):
            await asyncio.sleep(0.01)
        async with database.durable() as other:
            taking = asyncio.create_task(support.make_engine(other, database, pool))
            while not taking.done() and (await (await conn.execute(waits)).fetchone()) != (2,):
                await asyncio.sleep(0.01)
            await conn.execute("select pg_advisory_unlock(77)")
            await asyncio.gather(steward, taking)
        assert [subject for _, subject in await seen(conn, kinds=["worker.lost"])] == ["e"]


async def test_a_worker_that_had_neither_engine_nor_chunks_is_no_change(database: Database) -> None:
    async with database.durable() as conn:
        pool = await support.make_pool(conn)
        await support.make_worker(database, pool)
        await conn.execute("update worker set lease_until = now() - interval '1 minute'")
        assert await reaping.reap(conn) == (1, 0)
        assert await seen(conn) == []


async def test_a_start_with_another_version_is_a_version_change(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("1.0", "1.0", "1.1"):
        monkeypatch.setattr(service, "__version__", version)
        await service.started(database, "api")
    await service.started(database, "steward")
    async with database.durable() as conn:
        found = await seen(conn)
        [changed] = await service.page(conn, kinds=["version.changed"], limit=10)
    assert sorted(found) == [("part.started", "api")] * 3 + [("part.started", "steward"), ("version.changed", "api")]
    assert changed.data == {"from": "1.0", "to": "1.1"}


async def test_an_outage_of_the_database_is_two_changes_in_their_order_and_the_first_has_its_time(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping, tries = asyncio.Event(), []

    async def lead(
        database: Database, rounds: Rounds, settings: Settings, stop: object, outage: Outage, _: object
    ) -> None:
        tries.append(clock.now())
        if len(tries) < 3:
            raise OperationalError("the server closed the connection")
        await outage.over(database)
        await rounds.begin()
        await outage.over(database)
        stopping.set()

    monkeypatch.setattr(steward, "_lead", lead)
    hints = Hints.of(settings, settings.database_url)
    await steward._lead_again_and_again(database, Rounds(database, hints, settings), settings, stopping)
    async with database.durable() as conn:
        found = await service.page(conn, limit=9)
    assert [each.kind for each in reversed(found)] == ["database.lost", "database.back", "steward.leads"]
    assert found[2].at < tries[1]
    assert found[1].data["seconds"] >= 0.9
    assert "answers the steward again" in kinds.sentence(found[1].kind, found[1].subject, found[1].data)


async def test_a_part_that_dies_is_a_change_with_its_exit_code(database: Database) -> None:
    async with database.durable() as conn:
        await service.died(conn, "notifier", -9, clock.now())
        [found] = await service.page(conn, limit=9)
    assert (found.kind, found.subject, found.data["exit_code"]) == ("part.died", "notifier", -9)
    assert found.kind in kinds.TROUBLE
    said = "notifier {}; it is started again"
    assert kinds.sentence(found.kind, found.subject, found.data) == said.format("was killed (SIGKILL)")
    assert kinds.sentence(found.kind, found.subject, {"exit_code": 1}) == said.format(
        "ended by itself with exit code 1"
    )
    assert kinds.sentence(found.kind, found.subject, {}) == said.format("ended by itself")


async def test_a_part_starts_without_the_database_and_without_the_schema(database: Database) -> None:
    async with database.durable() as conn:
        await conn.execute("drop table change")
    await service.started(database, "api")


async def test_a_change_of_a_transaction_that_fails_is_not_written(database: Database) -> None:
    with pytest.raises(ForeignKeyViolation):
        async with database.transaction() as conn:
            await service.record(conn, ChangeKind.STEWARD_LEADS, "steward", {})
            await service.record(conn, ChangeKind.BUDGET_SPENT, "b", {}, tenant_id=12345)
    async with database.durable() as conn:
        assert await seen(conn) == []


async def test_pages_follow_each_other_without_a_gap_though_times_are_equal(database: Database) -> None:
    async with database.transaction() as conn:
        for number in range(5):
            await service.record(conn, ChangeKind.STEWARD_LEADS, str(number), {})
    found: list[str] = []
    before = None
    async with database.durable() as conn:
        while page := await service.page(conn, before=before, limit=2):
            found += [each.subject for each in page]
            before = ChangePosition(page[-1].at, page[-1].change_id)
    assert found == ["4", "3", "2", "1", "0"]


async def test_an_account_sees_the_installation_and_itself(database: Database) -> None:
    async with database.durable() as conn:
        one, other = await support.make_tenant(conn, "one"), await support.make_tenant(conn, "other")
        for tenant in (None, one, other):
            await service.record(conn, ChangeKind.BUDGET_SPENT, str(tenant), {}, tenant_id=tenant)
        assert [subject for _, subject in await seen(conn, tenant_id=one)] == ["None", str(one)]
        assert len(await seen(conn)) == 3


async def test_old_changes_and_those_beyond_the_newest_are_deleted(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with database.durable() as conn:
        for number in range(6):
            await service.record(conn, ChangeKind.STEWARD_LEADS, str(number), {})
        await conn.execute("update change set at = now() - interval '36 days' where subject = '0'")
        assert await service.prune(conn) == 1
        monkeypatch.setattr(service, "KEPT_ROWS", 3)
        assert await service.prune(conn) == 2
        assert [subject for _, subject in await seen(conn)] == ["3", "4", "5"]


async def test_an_engine_that_went_down_is_told_with_how_it_ended(database: Database) -> None:
    async with database.durable() as conn:
        pool = await support.make_pool(conn)
        worker = await support.make_engine(conn, database, pool)
        said = {"ready": False, "reason": "engine_down", "allowance": 0, "detail": "it was killed (SIGKILL)"}
        await support.report_engine(conn, 1, worker, **said)  # type: ignore[arg-type]
        [found] = await incidents.timeline(conn, only_trouble=True)
    assert found.message == "e does not serve any more: it was killed (SIGKILL)"


@pytest.mark.parametrize("kind", ChangeKind)
def test_every_kind_has_a_sentence_even_without_its_facts(kind: ChangeKind) -> None:
    said = kinds.sentence(kind, "x", {})
    assert said
    assert "{" not in said


def test_an_unknown_kind_is_shown_as_it_is() -> None:
    assert kinds.sentence("moon.full", "x", {}) == "moon.full: x"
