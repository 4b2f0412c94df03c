"""Arm: how many chunks the steward's round makes ready per second."""

import asyncio
from time import monotonic
from typing import Any

from app.batches import funding as rounds
from app.db.pool import Database
from app.engines import catalogue
from app.settings import Settings
from benchmarks.governance.queue_cost import serving
from benchmarks.harness import Testbed, say
from benchmarks.queue.workload import body, line

# What workers do, who take funded chunks at once: a round funds no more than a lane can have ready.
_TAKEN = ("delete from chunk where state = 'ready'", "update sched set ready = 0")


def funding(testbed: Testbed, items: int) -> dict[str, Any]:
    """All chunks of one batch under three budgets, each round timed."""
    settings = testbed.settings(testbed.database())
    with serving(settings, governed=True) as client:
        client.submit_lines(body(items), items * len(line(0)))
    chunks, seconds, count = asyncio.run(_fund(settings))
    rate = chunks / seconds
    say(f"funding: {chunks} chunks in {count} rounds, {rate:,.0f} chunks/s")
    return {"fund_chunks_s": round(rate), "fund_chunks": chunks, "fund_round_ms": round(seconds / count * 1e3, 2)}


async def _fund(settings: Settings) -> tuple[int, float, int]:
    """Chunks that were funded, the seconds that it took, and the number of rounds."""
    models = catalogue.load(settings.models_file)
    chunks, seconds, count = 0, 0.0, 0
    async with Database(settings.database_url) as database:
        while True:
            began = monotonic()
            funded = await rounds.fund(database, models)
            if not funded:
                return chunks, seconds, count
            chunks, seconds, count = chunks + funded, seconds + monotonic() - began, count + 1
            async with database.transaction() as conn:
                for statement in _TAKEN:
                    await conn.execute(statement)
