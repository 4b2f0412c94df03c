"""How long a round of the steward takes beside many open batches, and its look at the pools."""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any
from uuid import UUID

import psycopg

from app.db.pool import Database
from app.queue import pool_status
from app.settings import Settings
from benchmarks.harness import open_testbed, say
from benchmarks.statistics import percentiles
from workers.steward.rounds import Rounds

CHUNKS_PER_BATCH = 33
ACCOUNTS = 100
POOLS = 50
LOOKS = 10
_FILL = f"""
insert into pool (model) select 'model-' || g from generate_series(1, {POOLS}) g;
insert into tenant (account_id, name) select 'account-' || g, g from generate_series(1, {ACCOUNTS}) g;
insert into batch (batch_id, request_id, tenant_id, model, endpoint, total, deadline, expires_at)
  select (select next_batch_id() >> 36 << 36) + g, gen_random_uuid(), 1 + g % {ACCOUNTS}, 'model-' || 1 + g % {POOLS}, '/v1',
         64 * {CHUNKS_PER_BATCH}, now() + make_interval(secs => 3600 + g), now() + make_interval(secs => 3600 + g)
  from generate_series(1, %s) g;
insert into chunk (batch_id, run, tenant_id, pool_id, lo, hi, n, est_tokens, deadline)
  select batch_id, 1, tenant_id, 1 + batch_id %% {POOLS}, 64 * c, 64 * c + 63, 64, 6400, deadline
  from batch, generate_series(0, {CHUNKS_PER_BATCH} - 1) c;
insert into sched (pool_id, tenant_id, ready) select pool_id, tenant_id, count(*) from chunk group by 1, 2"""


class NoHints:
    """A broker to which nothing is said."""

    async def endpoints(self, endpoint_ids: list[UUID]) -> bool:
        """Take the hints."""
        return True

    async def duties(self, duties: Sequence[str], seconds: float) -> bool:
        """Take the hints."""
        return True


async def _rounds(settings: Settings, seconds: float) -> tuple[list[float], list[float]]:
    """Milliseconds of each round and of each look at the pools."""
    rounds_ms, looks_ms = [], []
    async with Database.of(settings, "bench steward") as database:
        rounds = Rounds(database, NoHints(), settings)
        await rounds.run()  # the first one does all that is done rarely
        until = monotonic() + seconds
        while monotonic() < until:
            began = monotonic()
            await rounds.run()
            rounds_ms.append(1000 * (monotonic() - began))
            await asyncio.sleep(settings.steward_seconds)
        for _ in range(LOOKS):
            began = monotonic()
            async with database.relaxed() as conn:
                await pool_status.write(conn)
            looks_ms.append(1000 * (monotonic() - began))
    return rounds_ms, looks_ms


def steward_round(batches: int, seconds: float) -> dict[str, Any]:
    """`steward_round_ms`: half of the rounds are shorter; `_p99`: 99 of 100 are. `pool_status_ms`: the same of a look at the
    pools, which is taken beside them.
    """
    with open_testbed("") as testbed:
        url = testbed.database()
        with psycopg.connect(url, autocommit=True) as conn:
            for statement in _FILL.split(";\n"):
                conn.execute(statement.replace("%s", str(batches)).replace("%%", "%").encode())
            conn.execute("vacuum analyze")
        rounds_ms, looks_ms = asyncio.run(_rounds(testbed.settings(url), seconds))
    usual, slow = percentiles(rounds_ms)
    found = {
        "steward_round_ms": round(usual, 1),
        "steward_round_ms_p99": round(slow, 1),
        "steward_round_ms_max": round(max(rounds_ms), 1),
        "pool_status_ms": round(percentiles(looks_ms)[0], 1),
    }
    say(f"steward: {batches} open batches, {found}")
    return {**found, "steward_batches": batches, "steward_chunks": batches * CHUNKS_PER_BATCH}
