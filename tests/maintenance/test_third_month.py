"""All duties on an installation in its third month."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from app.audit import sealing
from app.db.pool import Database
from app.duties.schedule import BY_NAME
from app.engines.service import ensure_pool
from app.settings import Settings
from app.storage.store import Store
from tests.maintenance import third_month
from tests.maintenance.support import make_due, read
from tests.maintenance.third_month import ENGINES, HELD_DAY, NEW_DAYS, OLD_DAYS
from tests.queue import support
from tests.queue.past import Past
from workers.maintenance.worker import Worker
from workers.steward.rounds import Rounds

# What says when something was looked at, and not what was found.
_LOOKS = {"ledger_check": "at", "pool_status": "at"}
_OWN = ("duty", "alembic_version")


@pytest.fixture
async def past(database: Database, settings: Settings) -> AsyncIterator[Past]:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await ensure_pool(conn, "toy")
        yield Past(database, conn, tenant, pool, Store.of(settings))


class Asked:
    """A broker that remembers what was asked for."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def endpoints(self, endpoint_ids: list[UUID]) -> bool:
        return True

    async def duties(self, duties: Sequence[str], seconds: float) -> bool:
        self.names += duties
        return True


async def contents(past: Past) -> dict[str, Any]:
    """What the database and the object store have: a digest of each table."""
    query = """select c.oid::regclass::text from pg_class c where relkind = 'r' and relnamespace = 'public'::regnamespace
               order by 1"""
    found: dict[str, Any] = {}
    for (table,) in await (await past.conn.execute(query)).fetchall():
        if table not in _OWN:
            row = f"to_jsonb(t) - '{_LOOKS.get(table, '')}'"
            found[table] = await past.one(
                f"select md5(string_agg(r, '|' order by r)) from (select ({row})::text r from {table} t) x"
            )
    return found | {"objects": sorted([key async for key, _ in past.store.list("")])}


async def do_all(past: Past, rounds: Rounds, asked: Asked, worker: Worker) -> None:
    """A round of the leading steward, and every duty that it asks for."""
    await make_due(past.database)
    await rounds.run()
    assert set(asked.names) == set(BY_NAME)
    asked.names.clear()
    for name in BY_NAME:
        if name == "audit_sign":
            await sealing.seal(past.database)  # what the duties before have noted
        await asyncio.to_thread(worker.do, name)


async def test_every_duty_succeeds_drops_what_it_must_and_changes_nothing_the_second_time(
    past: Past, settings: Settings, tmp_path: Path
) -> None:
    settings = settings.model_copy(update={"audit_retention_days": 30})
    days = await third_month.make(past, settings, tmp_path)
    asked = Asked()
    rounds = Rounds(past.database, asked, settings)
    await rounds.begin()
    with capture_logs() as logs, Worker(settings) as worker:
        await do_all(past, rounds, asked, worker)
        first = await contents(past)
        rounds = Rounds(past.database, asked, settings)  # one that has looked at nothing yet
        await do_all(past, rounds, asked, worker)
        second = await contents(past)
    found = await read(past.database)
    assert {name for name, each in found.items() if each.succeeded_at is None or each.error} == set()
    assert {name for name in {*first, *second} if first.get(name) != second.get(name)} == set()
    assert [entry for entry in logs if entry["log_level"] in ("warning", "error") and "objects" not in entry] == []

    assert [ago for ago in OLD_DAYS if await past.tables(days[ago])] == []
    assert [ago for ago in (HELD_DAY, *NEW_DAYS) if not await past.tables(days[ago])] == []
    frozen = f"select age(relfrozenxid) < 1000 from pg_class where relname = 'item_result_{days[1]:%Y%m%d}'"
    assert await past.one(frozen)
    rows = {
        "engine": ENGINES * 7 // 88 + 1,
        "session": 30,
        "turn": 30,
        "file": 1,
        "latency_minute": 8 * 4,
        "change": 35 * 4,
    }
    counts = {table: await past.one(f"select count(*) from {table}") for table in rows}
    assert {table: (counts[table], most) for table, most in rows.items() if not 0 < counts[table] <= most + 4} == {}
    assert await past.one("select count(*) from usage where hour < now() - interval '36 days'") == 0
    used = "select sum(requests)::int from (table usage union all table usage_day) u"
    assert await past.one(used) == 700 + 5 * len(days)
    assert await past.one("select count(*) from tenant where account_id = 'gone'") == 0
    assert await past.one("select count(*) from budget where window_to < now()") == 0
    assert second["objects"] == [key for key in second["objects"] if key.startswith(("audit/", "file/", "marker/"))]
    assert len([key for key in second["objects"] if key.startswith("file/")]) == 1
