"""The installation that pages are measured on: history of engines and webhooks, 10,000 batches, one of a million items,
pipelines and conversations.
"""

from dataclasses import dataclass

import psycopg

from app.cli.database import on_database
from app.db.pool import Connection
from app.settings import Settings
from benchmarks.harness import Testbed, say
from testing import large_flows, operations_data
from testing.large_installation import ACCOUNT, LargeInstallation

LARGE_BATCH = "ffffffff-0000-0000-0000-000000000000"
ENGINE, HOOK = "east-2", operations_data.HOOK
SAMPLES = 8640  # of each engine, ten seconds apart: a day


@dataclass(frozen=True)
class Installed:
    """A filled database. `delivery`: the id of one delivery of HOOK."""

    settings: Settings
    large: LargeInstallation
    delivery: int

    @property
    def account(self) -> str:
        """The owner of the large batch."""
        return ACCOUNT


def install(testbed: Testbed, batches: int, items: int) -> Installed:
    """Fill a fresh database with a large batch of `items`, of which seven in ten are answered."""
    settings = testbed.settings(testbed.database())
    large = LargeInstallation(batches, items, answered=items * 7 // 10)
    say(f"{batches:,} batches and {items:,} items …")
    options = "-c synchronous_commit=off"
    with psycopg.connect(settings.database_url, autocommit=True, options=options) as conn:
        conn.execute(large.sql().encode())
        conn.execute(large.chunks().encode())
        conn.execute(large_flows.SQL.encode())
        on_database(settings, _history)
        conn.execute("vacuum (analyze)")
        conn.execute("checkpoint")
        found = conn.execute(
            "select min(delivery_id) from delivery join endpoint using (endpoint_id) where name = 'support hook'"
        )
        [delivery] = found.fetchone() or (0,)
    return Installed(settings, large, delivery)


async def _history(conn: Connection) -> None:
    async with conn.transaction():
        await operations_data.fill(conn, samples=SAMPLES)
