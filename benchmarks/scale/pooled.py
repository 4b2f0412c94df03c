"""Claims through a PgBouncer in transaction mode against claims that go directly to the server, by turns in one run."""

import asyncio
import tempfile
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

from app.db.pool import Database
from app.engines.service import ensure_pool
from app.queue import service
from benchmarks.harness import open_testbed, say
from benchmarks.queue.order import enqueue, register
from testing.pgbouncer import MISSING, pooling, program, version

CLAIMS = 200  # of each way in a round
CLIENTS = 8
_CHUNK = 4  # items
_TENANTS = 20


def claims(*, rounds: int) -> dict[str, Any]:
    """The median time of a claim by several clients at once, each way, and how many times longer it is through the pooler; the
    same of one client alone, for which a pooler is only a way round. Null with a note where there is no PgBouncer.
    """
    if (path := program()) is None:
        return {"pooled_claim_ratio": None, "notes": [MISSING]}
    with open_testbed("") as testbed, tempfile.TemporaryDirectory(prefix="slackwater-pooler-") as folder:
        Path(folder).chmod(0o755)
        url = testbed.database()
        with pooling(Path(folder) / "pooler", url, default_pool_size=CLIENTS) as pooler:
            urls = {"direct": url, "pooled": pooler.url}
            many = asyncio.run(_milliseconds(urls, rounds, CLIENTS))
            one = asyncio.run(_milliseconds(urls, rounds, 1))
    say(f"pooled: {CLIENTS} clients {many}, one client {one}")
    return {
        "pooled_claim_ratio": round(many["pooled"] / many["direct"], 3),
        "pooled_claim_ms": round(many["pooled"], 4),
        "direct_claim_ms": round(many["direct"], 4),
        "pooled_claim_ratio_one_client": round(one["pooled"] / one["direct"], 3),
        "pooled_claim_rounds": rounds,
        "pgbouncer": ".".join(map(str, version(path))),
    }


async def _milliseconds(urls: dict[str, str], rounds: int, clients: int) -> dict[str, float]:
    """Of a claim, each way: its share of the time in which all clients make theirs."""
    model = f"claimed by {clients}"
    seconds: dict[str, list[float]] = {way: [] for way in urls}
    async with Database(urls["direct"], size=CLIENTS) as direct, Database(urls["pooled"], size=CLIENTS) as pooled:
        items = -(-(rounds + 1) * 2 * CLAIMS // _TENANTS) * _CHUNK
        for number in range(_TENANTS):
            await enqueue(direct, f"tenant-{number}", model, items, tokens=10, chunk=_CHUNK)
        async with direct.durable() as conn:
            pool_id = await ensure_pool(conn, model)
        worker_id = await register(direct, pool_id)
        for turn in range(rounds + 1):  # the first one prepares the statements
            for way, database in (("direct", direct), ("pooled", pooled)):
                began = monotonic()
                await asyncio.gather(*(_claim(database, pool_id, worker_id, CLAIMS // clients) for _ in range(clients)))
                if turn:
                    seconds[way].append(monotonic() - began)
    return {way: median(found) / CLAIMS * 1000 for way, found in seconds.items()}


async def _claim(database: Database, pool_id: int, worker_id: int, count: int) -> None:
    for _ in range(count):
        async with database.relaxed() as conn:
            assert await service.claim(conn, pool_id, worker_id)
