"""The log of the gate's decisions, on PostgreSQL: what is kept, in which order, and what a lost database costs."""

import asyncio
import dataclasses
import itertools

import psycopg
import pytest

from app import clock
from app.db.pool import Database
from app.headroom import decision_log, sql
from app.headroom.controller import Decision
from app.headroom.decision_log import AllowanceChange, DecisionLog
from app.headroom.gate_rules import Reason
from testing.waiting import eventually
from tests.queue.plans import read

CHANGE = AllowanceChange("l1", 16, 0, "open", "closed_sync_waiting", "sync_waiting", 3.0, 1.0, 12, 2)
WIDE = {"keep_days": 7.0, "keep_rows": 10_000}


def change(number: int) -> AllowanceChange:
    return dataclasses.replace(CHANGE, allowance=number)


async def test_changes_come_back_whole_and_in_order_though_written_at_once(database: Database) -> None:
    now = clock.monotonic()
    rows = [
        (now - 2, change(1)),
        (now - 1, change(2)),
        (now - 1, change(3)),
        (now, AllowanceChange("l2", 3, 4, "", "", None, None, None, 0, 0)),
    ]
    async with database.durable() as conn:
        await decision_log.record(conn, 1, rows)
        await decision_log.record(conn, 2, [(now, change(9))])
        await decision_log.record(conn, 2, [])
        newest = await decision_log.recent(conn, 1, 3)
        assert [entry.change for entry in newest] == [rows[3][1], rows[2][1], rows[1][1]]


async def test_a_row_is_as_old_as_its_decision_by_the_clock_of_the_database(database: Database) -> None:
    async with database.transaction() as conn:
        await decision_log.record(conn, 1, [(clock.monotonic() - 3600, CHANGE)])
        [entry] = await decision_log.recent(conn, 1, 5)
        row = await (await conn.execute("select extract(epoch from clock_timestamp() - %s)", (entry.at,))).fetchone()
    assert row is not None
    assert 3600 <= row[0] < 3660


async def test_rows_that_are_too_old_or_too_many_are_pruned_and_no_others(database: Database) -> None:
    now = clock.monotonic()
    async with database.durable() as conn:
        await decision_log.record(
            conn, 1, [(now - 8 * 86_400, change(0)), *((now - 10 + i, change(1 + i)) for i in range(9))]
        )
        await decision_log.record(conn, 2, [(now - 9 * 86_400, change(77))])
        assert await decision_log.prune(conn, 1, **WIDE) == 1
        assert await decision_log.prune(conn, 1, **WIDE) == 0
        assert await decision_log.prune(conn, 1, keep_days=7, keep_rows=4) == 5
        assert [entry.change.allowance for entry in await decision_log.recent(conn, 1, 99)] == [9, 8, 7, 6]
        assert len(await decision_log.recent(conn, 2, 99)) == 1


async def test_a_flush_is_one_statement_whatever_was_noted(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    execute = psycopg.AsyncConnection.execute

    async def counted(self: object, query: str, *rest: object, **named: object) -> object:
        asked.append(query)
        return await execute(self, query, *rest, **named)  # type: ignore[call-overload]

    notes = DecisionLog(database, **WIDE)  # type: ignore[arg-type]
    notes.engine_id = 1
    for number in range(500):
        notes.add(change(number))
    monkeypatch.setattr(psycopg.AsyncConnection, "execute", counted)
    await notes.flush()
    await notes.flush()
    assert [query for query in asked if "insert into decision" in query] == [sql.RECORD]
    async with database.durable() as conn:
        assert len(await decision_log.recent(conn, 1, 1000)) == 500


async def test_changes_wait_for_the_engine_to_be_known(database: Database) -> None:
    notes = DecisionLog(database, **WIDE)  # type: ignore[arg-type]
    notes.add(CHANGE)
    await notes.flush()
    notes.engine_id = 5
    await notes.flush()
    async with database.durable() as conn:
        assert len(await decision_log.recent(conn, 5, 9)) == 1


async def test_without_the_database_the_newest_are_kept_the_others_counted_and_all_is_well_afterwards(
    database: Database, database_url: str
) -> None:
    nowhere = Database("postgresql://127.0.0.1:1/none", size=1, patience_seconds=0.1)
    async with nowhere:
        notes = DecisionLog(nowhere, keep_days=7, keep_rows=100, capacity=3)
        notes.engine_id = 1
        for number in range(4):
            notes.add(change(number))
        await notes.flush()
        notes.add(change(4))
        await notes.flush()
        assert notes.dropped == 2
        notes._database = database  # it is there again
        await notes.flush()
    async with database.durable() as conn:
        assert [entry.change.allowance for entry in await decision_log.recent(conn, 1, 9)] == [4, 3, 2]


async def test_the_running_journal_writes_what_is_noted_until_it_is_cancelled(database: Database) -> None:
    notes = DecisionLog(database, **WIDE)  # type: ignore[arg-type]
    notes.engine_id = 1
    task = asyncio.create_task(notes.run())
    notes.add(CHANGE)
    async with database.durable() as conn:
        await eventually(lambda: decision_log.recent(conn, 1, 9))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_no_statement_reads_the_log_from_end_to_end(database: Database) -> None:
    async with database.durable() as conn:
        for engine in range(1, 6):
            await decision_log.record(conn, engine, [(clock.monotonic() - 60 * i, CHANGE) for i in range(4000)])
        await conn.execute("analyze decision")
        given = {"engine_id": 3, "limit": 20, "keep_seconds": 3500 * 60, "keep_rows": 3000, "at_once": 50}
        given |= {"before_at": None, "before": None, "failures": []}
        for statement in (sql.recent("all"), sql.recent("failures"), sql.PRUNE):
            explained = await conn.execute(f"explain (analyze, buffers, format json) {statement}".encode(), given)
            found = await explained.fetchone()
            assert found is not None
            assert "Seq Scan" not in str(found[0]), statement
            assert read(found[0][0]["Plan"]).pages < 400, statement


def told(*ticks: tuple[float, Reason, int]) -> list[tuple[float, str, str, int, int]]:
    """The rows that these decisions, each of its second, are worth after one that is open at 254."""
    log, rows = decision_log.LoggedDecision(decided(Reason.OPEN, 254)), []
    for now, reason, allowance in ticks:
        decision = decided(reason, allowance)
        if (was := log.change(now, decision)) is not None:
            rows.append((now, was.reason.value, reason.value, was.allowance, allowance))
    return rows


def decided(reason: Reason, allowance: int) -> Decision:
    return Decision(allowance, reason, "load", 1, 2)


def test_reasons_that_take_turns_at_one_allowance_are_told_once_a_second() -> None:
    turns = (Reason.CLOSED_SLOTS, Reason.OPEN)
    rows = told(*((100 + n / 10, turns[n % 2], 254) for n in range(40)))
    assert len(rows) == 4
    assert all(later[0] - row[0] >= decision_log.REASON_SECONDS for row, later in itertools.pairwise(rows))
    assert all(row[2] == later[1] for row, later in itertools.pairwise(rows))


def test_open_and_full_by_turns_are_told_only_where_the_allowance_changes_much() -> None:
    turns = ((Reason.FULL, 254), (Reason.OPEN, 254), (Reason.RAMP, 250))
    assert told(*((100 + n, *turns[n % 3]) for n in range(40))) == []
    assert told((100.0, Reason.FULL, 254), (120.0, Reason.FULL, 120)) == [(120.0, "open", "full", 254, 120)]
    assert told((100.0, Reason.FULL, 254), (100.1, Reason.CLOSED_KV, 0)) == [(100.1, "open", "closed_kv", 254, 0)]


def test_a_reason_that_stays_is_told_when_the_second_is_over() -> None:
    rows = told((100.0, Reason.CLOSED_SLOTS, 254), *((100.1 + n / 10, Reason.RAMP, 254) for n in range(12)))
    assert [row[1:] for row in rows] == [("open", "closed_slots", 254, 254), ("closed_slots", "ramp", 254, 254)]


def test_a_failure_that_says_something_else_is_told_again_at_most_once_a_second() -> None:
    log = decision_log.LoggedDecision(decided(Reason.OPEN, 254))
    closed = decided(Reason.CLOSED_UNKNOWN, 0)
    told = [log.change(at, closed, said) for at, said in ((1, "a"), (1.5, "b"), (2.5, "b"), (4, "b"), (9, "a"))]
    assert [was is not None for was in told] == [True, False, True, False, True]
    assert log.change(20, decided(Reason.OPEN, 254), "a note, not a failure") is not None
    assert log.change(30, decided(Reason.OPEN, 254), "another") is None


def test_a_closure_and_a_failure_are_told_at_once() -> None:
    rows = told(
        (100.0, Reason.CLOSED_SLOTS, 254),
        (100.1, Reason.CLOSED_SYNC_WAITING, 0),
        (100.2, Reason.CLOSED_STALE, 0),
        (100.3, Reason.CLOSED_SYNC_WAITING, 0),
        (100.4, Reason.OPEN, 12),
    )
    assert [row[2:] for row in rows] == [
        ("closed_slots", 254, 254),
        ("closed_sync_waiting", 254, 0),
        ("closed_stale", 0, 0),
        ("closed_sync_waiting", 0, 0),
        ("open", 0, 12),
    ]


def test_an_allowance_that_changes_by_a_quarter_is_told_under_the_same_reason_too() -> None:
    rows = told(
        *((at, Reason.HARVEST, size) for at, size in ((100.0, 30), (120, 29), (140, 16), (160, 18), (180, 0), (200, 1)))
    )
    assert [row[2:] for row in rows] == [
        ("harvest", 254, 30),
        ("harvest", 30, 16),
        ("harvest", 16, 0),
        ("harvest", 0, 1),
    ]


def test_an_allowance_that_swings_is_told_once_in_ten_seconds() -> None:
    rows = told(*((100 + n / 10, Reason.HARVEST, 30 if n % 2 else 10) for n in range(600)))
    assert len(rows) <= 1 + 60 / decision_log.SIZE_SECONDS
    assert all(later[0] - row[0] >= decision_log.SIZE_SECONDS for row, later in itertools.pairwise(rows))
    assert all(row[4] == later[3] for row, later in itertools.pairwise(rows))


def test_an_allowance_that_creeps_is_told_against_the_last_row() -> None:
    rows = told((100.0, Reason.RAMP, 100), *((110.0 + 10 * n, Reason.RAMP, 100 - n) for n in range(45)))
    assert [row[3:] for row in rows] == [(254, 100), (100, 75), (75, 56)]
