"""Claims about the lead of a steward whose round takes long: longer than the server's patience, which is real time."""

import asyncio

import psycopg
import pytest

from app.db.pool import Database
from app.settings import Settings
from testing.waiting import in_time
from workers.steward import leader

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes the lead back after two seconds of silence: a busy machine may stand still for one."""
    monkeypatch.setattr(leader, "_IDLE_TIMEOUT", "set idle_session_timeout = '2s'")
    monkeypatch.setattr(leader, "_KEEP_SECONDS", 0.05)


async def long_round(database: Database) -> None:
    async with database.relaxed() as conn:
        await conn.execute("select pg_sleep(4)")


async def test_a_round_longer_than_the_servers_patience_does_not_cost_the_lead(
    database: Database, settings: Settings
) -> None:
    async with leader.leadership(settings.database_url, asyncio.Event()) as lead:
        assert lead is not None
        async with lead.kept():
            await long_round(database)
        await lead.confirm()
        await long_round(database)  # without it
        with pytest.raises(psycopg.OperationalError):
            await lead.confirm()


async def test_a_round_that_hangs_costs_the_lead(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "_HANGS_SECONDS", 0.0)
    async with leader.leadership(settings.database_url, asyncio.Event()) as lead:
        assert lead is not None
        async with lead.kept():
            await long_round(database)
            async with in_time(), leader.leadership(settings.database_url, asyncio.Event()) as other:
                assert other is not None
        with pytest.raises(psycopg.OperationalError):
            await lead.confirm()
