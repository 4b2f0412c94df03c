"""What a peer does in the peers arm, run by the throwaway environment's Python; imports nothing of Slackwater.

    python -m benchmarks.peer_worker PEER (setup | enqueue | work) URL JOBS

`setup` installs the peer's schema. `enqueue` puts JOBS jobs in, `work` runs no-op jobs until none is left; both print
`ready`, wait for `go`, and report how many they did, and when the last was done.

Settings are the fastest durable ones that the peers' documentation names, or that we found by trying:

    pgqueuer        asyncpg, one connection per worker, uvloop, `pgq autovac`, a larger batch_size (its
                    docs/guides/performance-tuning.md); durability `balanced`: its log tables unlogged, the queue logged
    procrastinate   async tasks with concurrency (docs/howto/production/concurrency), no LISTEN, finished jobs are kept
                    or deleted, whichever is faster; both bulk inserts are one statement per 5,000 jobs
"""

import asyncio
import json
import logging
import os
import sys
from time import monotonic
from typing import Any

os.environ.setdefault("PGQUEUER_DURABILITY", "balanced")
_PART = 5_000
_BATCH_SIZE = int(os.environ.get("PEER_BATCH_SIZE", "64"))
_CONCURRENCY = int(os.environ.get("PEER_CONCURRENCY", "10"))
_DELETE_JOBS = os.environ.get("PEER_DELETE_JOBS", "never")


async def _go() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


class _Done:
    """Counts jobs."""

    def __init__(self) -> None:
        self.count, self.last = 0, monotonic()

    def one(self) -> None:
        """A job is done."""
        self.count += 1
        self.last = monotonic()

    def tell(self) -> None:
        """The report that the crew expects."""
        print(json.dumps({"items": self.count, "end": self.last}), flush=True)


async def pgqueuer(act: str, url: str, jobs: int) -> None:
    """pgqueuer on asyncpg."""
    import asyncpg
    from pgqueuer import AsyncpgDriver, PgQueuer, Queries
    from pgqueuer.domain.types import QueueExecutionMode

    connection: Any = await asyncpg.connect(url)
    queries, done = Queries(AsyncpgDriver(connection)), _Done()
    if act == "setup":
        await queries.install()
        await queries.optimize_autovacuum()
    elif act == "enqueue":
        await _go()
        for first in range(0, jobs, _PART):
            n = min(_PART, jobs - first)
            await queries.enqueue(["noop"] * n, [b"x"] * n, [0] * n)
            done.count, done.last = first + n, monotonic()
        done.tell()
    else:
        worker = PgQueuer(AsyncpgDriver(connection))

        @worker.entrypoint("noop")
        async def noop(_: object) -> None:
            done.one()

        await _go()
        await worker.run(batch_size=_BATCH_SIZE, mode=QueueExecutionMode.drain)
        done.tell()
    await connection.close()


async def procrastinate(act: str, url: str, jobs: int) -> None:
    """procrastinate on psycopg."""
    from procrastinate import App, PsycopgConnector

    done = _Done()
    app = App(connector=PsycopgConnector(conninfo=url, min_size=_CONCURRENCY, max_size=_CONCURRENCY + 2))

    @app.task(name="noop")
    async def noop(n: int) -> None:
        done.one()

    async with app.open_async():
        if act == "setup":
            await app.schema_manager.apply_schema_async()
            return
        await _go()
        if act == "enqueue":
            for first in range(0, jobs, _PART):
                await noop.batch_defer_async(*({"n": n} for n in range(first, min(jobs, first + _PART))))
            done.count, done.last = jobs, monotonic()
        else:
            await app.run_worker_async(
                wait=False,
                concurrency=_CONCURRENCY,
                listen_notify=False,
                delete_jobs=_DELETE_JOBS,
                install_signal_handlers=False,
            )
        done.tell()


if __name__ == "__main__":
    import uvloop

    logging.disable(logging.WARNING)
    peers = {"pgqueuer": pgqueuer, "procrastinate": procrastinate}
    uvloop.run(peers[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4])))
