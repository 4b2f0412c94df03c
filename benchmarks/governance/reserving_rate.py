"""Arm: how many chunks the steward's round makes ready per second."""

import asyncio
from time import monotonic
from typing import Any

from app.budgets import queued
from app.db.pool import Database
from app.engines import catalogue
from app.settings import Settings
from benchmarks.governance.queue_cost import serving
from benchmarks.governance.served import served
from benchmarks.harness import Testbed, say
from benchmarks.queue.workload import body, line

# What workers do, who take chunks at once: a round reserves for no more than can be ready.
_TAKEN = ("delete from chunk where state = 'ready'", "update sched set ready = 0")


def reserving(testbed: Testbed, items: int) -> dict[str, Any]:
    """All chunks of one batch under three budgets, each round timed."""
    settings = testbed.settings(testbed.database())
    with serving(settings, governed=True) as client:
        client.submit_lines(body(items), items * len(line(0)))
    served(settings.database_url)
    chunks, seconds, count = asyncio.run(_reserve(settings))
    rate = chunks / seconds
    say(f"reserving: {chunks} chunks in {count} rounds, {rate:,.0f} chunks/s")
    return {
        "reserve_chunks_s": round(rate),
        "reserve_chunks": chunks,
        "reserve_round_ms": round(seconds / count * 1e3, 2),
    }


async def _reserve(settings: Settings) -> tuple[int, float, int]:
    """Chunks for which money was reserved, the seconds that it took, and the number of rounds."""
    models = catalogue.load(settings.models_file)
    chunks, seconds, count = 0, 0.0, 0
    async with Database(settings.database_url) as database:
        while True:
            began = monotonic()
            reserved = await queued.reserve(database, models)
            if not reserved:
                return chunks, seconds, count
            chunks, seconds, count = chunks + reserved, seconds + monotonic() - began, count + 1
            async with database.transaction() as conn:
                for statement in _TAKEN:
                    await conn.execute(statement)
