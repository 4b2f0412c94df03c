"""Claims about a steward that leads and has nothing to do."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from app.batches.waits_sql import WAITS
from app.db.pool import Database
from app.queue import wakes
from app.settings import Settings
from testing.waiting import in_time
from tests.queue import support
from workers.steward import rest as resting
from workers.steward.leader import Leadership, leadership
from workers.steward.rest import CALM_SECONDS, ROUND_SECONDS, Pace, Rest

TERMS = {"rehint": 10}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(resting.clock, "monotonic", lambda: now[0])
    return now


@dataclass
class Lead:
    """A lead whose waits take no time. `called_at`, `waits_at`: from which second on it is called, or something waits."""

    clock: list[float]
    called_at: float = 1e9
    waits_at: float = 1e9
    asked: list[float] = field(default_factory=list)
    confirmed: int = 0

    async def confirm(self) -> None:
        self.confirmed += 1

    async def ask(self, query: str, parameters: dict[str, Any]) -> tuple[bool, float, float]:
        self.asked.append(self.clock[0])
        return self.clock[0] >= self.waits_at, 1.0, 0.5

    async def called(self, seconds: float, stopping: asyncio.Event) -> bool:
        await asyncio.sleep(0)
        called = self.called_at <= self.clock[0] + seconds
        self.clock[0] = self.called_at if called else self.clock[0] + seconds
        return called


async def take(rest: Rest, lead: Lead) -> None:
    await rest.take(lead, asyncio.Event())  # type: ignore[arg-type]


async def test_it_asks_one_question_a_second_and_the_loops_beside_its_rounds_ask_nothing(
    settings: Settings, clock: list[float]
) -> None:
    pace, seen, turns = Pace(), list[tuple[float, float]](), list[float]()

    async def loop() -> None:
        while True:
            await pace.pause(0)
            turns.append(clock[0])

    beside = asyncio.create_task(loop())
    rest, lead = Rest(settings, pace, lambda *times: seen.append(times)), Lead(clock)
    clock[0] += CALM_SECONDS
    await asyncio.sleep(0)
    began = clock[0]
    await take(rest, lead)
    assert clock[0] == began + ROUND_SECONDS
    assert lead.asked == [began + n for n in range(int(ROUND_SECONDS) + 1)]
    assert lead.confirmed == ROUND_SECONDS
    assert seen == [(1.0, 0.5)] * len(lead.asked)
    assert not [turn for turn in turns if began < turn < clock[0]]
    await asyncio.sleep(0.01)
    assert clock[0] in turns  # they go on when the rest is over
    beside.cancel()


async def test_it_does_not_rest_until_nothing_has_waited_for_a_while(settings: Settings, clock: list[float]) -> None:
    rest, lead = Rest(settings, Pace(), lambda *_: None), Lead(clock, waits_at=0)
    clock[0] += CALM_SECONDS
    await take(rest, lead)
    lead.waits_at = 1e9
    clock[0] += CALM_SECONDS - 0.1
    before = clock[0]
    await take(rest, lead)
    assert clock[0] == before


@pytest.mark.parametrize("how", ["called_at", "waits_at"])
async def test_a_call_ends_the_rest_at_once_and_what_nobody_announced_within_a_second(
    settings: Settings, clock: list[float], how: str
) -> None:
    rest, lead = Rest(settings, Pace(), lambda *_: None), Lead(clock)
    clock[0] += CALM_SECONDS
    comes = clock[0] + 2.5
    setattr(lead, how, comes)
    await take(rest, lead)
    assert clock[0] == (comes if how == "called_at" else comes + 0.5)


async def test_a_call_reaches_the_leader_also_when_it_comes_with_the_answer_to_a_statement(
    settings: Settings, database: Database
) -> None:
    stopping = asyncio.Event()
    async with leadership(settings.database_url, stopping) as lead, in_time():
        assert lead is not None
        waits = asyncio.create_task(lead.called(60, stopping))
        await call(database)
        assert await waits
        await lead.confirm()
        await lead.called(0, stopping)
        assert not await lead.called(0.01, stopping)
        await call(database)
        await lead.confirm()
        assert await lead.called(0, stopping)
        stopping.set()
        assert not await lead.called(60, stopping)


async def test_a_lost_lead_ends_the_wait_for_calls(settings: Settings, database: Database) -> None:
    with pytest.raises(psycopg.OperationalError):
        async with leadership(settings.database_url, asyncio.Event()) as lead, in_time():
            assert lead is not None
            waits = asyncio.create_task(lead.called(60, asyncio.Event()))
            async with database.relaxed() as conn:
                await conn.execute(
                    "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted"
                )
            assert await waits
            await lead.confirm()


async def call(database: Database) -> None:
    async with database.relaxed() as conn:
        await wakes.call_steward(conn)


# ---------------------------------------------------------------- what waits


Made = Callable[[Database], Awaitable[Any]]


def row(table: str, **values: str) -> Made:
    """A row of this table with these expressions, and anything in the other columns that need a value."""

    async def make(database: Database) -> None:
        async with database.transaction() as conn:
            await conn.execute("set local session_replication_role = replica")  # no foreign keys
            found = await conn.execute(
                """select column_name, data_type from information_schema.columns where table_name = %s and is_nullable = 'NO'
                   and column_default is null and is_identity = 'NO'""",
                (table,),
            )
            some = {name: ANYTHING.get(kind, "1") for name, kind in await found.fetchall()} | values
            names, given = ", ".join(some), ", ".join(some.values())
            await conn.execute(f"insert into {table} ({names}) values ({given})".encode())

    return make


ANYTHING = {
    "uuid": "gen_random_uuid()",
    "text": "'x'",
    "jsonb": "'{}'",
    "ARRAY": "'{}'",
    "bytea": "'x'",
    "boolean": "false",
    "timestamp with time zone": "now()",
    "date": "now()::date",
}


async def batch(database: Database) -> None:
    async with database.transaction() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    await support.submit(database, tenant, pool, 3)


LAPSED, ENDPOINT = "now() - interval '1 second'", "gen_random_uuid()"
WAITING: dict[str, Made] = {
    "a batch": batch,
    "counts": row("batch_delta"),
    "use": row("sched_delta"),
    "results to hand on": row("handoff", due="now()"),
    "a pipeline": row("pipeline"),
    "audit records": row("audit_pending"),
    "a lost worker": row("worker", lease_until=LAPSED),
    "a window of a budget": row(
        "budget",
        window_to=LAPSED,
        period="'day'",
        unit="'tokens'",
        scope="'account'",
        queued="'wait'",
        synchronous="'refuse'",
        reserve="'expected'",
        owner="'account'",
        tz="'UTC'",
    ),
    "a turn": row("turn", state="'queued'"),
    "an endpoint that goes": row("endpoint", state="'closing'", queue_id="'q'"),
    "an account that goes": row("tenant", state="'closing'"),
    "a lapsed attempt": row("delivery", state="'sending'", lease_until=LAPSED),
}


@pytest.mark.parametrize("what", WAITING)
async def test_whatever_waits_for_the_steward_ends_its_rest(settings: Settings, database: Database, what: str) -> None:
    async with leadership(settings.database_url, asyncio.Event()) as lead:
        assert lead is not None
        assert not await waits(lead)
        await WAITING[what](database)
        assert await waits(lead)


async def waits(lead: Leadership) -> bool:
    return bool((await lead.ask(WAITS, TERMS))[0])
