"""A process of another queue in the peers arm. It runs in a virtual environment without Slackwater.

    python -m benchmarks.queue.peers_worker PEER (setup | enqueue | work) URL JOBS

`setup` installs the peer's schema. `enqueue` adds JOBS jobs. `work` runs empty jobs until none is left. The last two print
`ready`, wait for `go`, and report the number of jobs and the time of the last one. With PEER_RESULT_BYTES (pgqueuer only),
a job carries 1,024 bytes and stores a result of that size in a table, as an inference job must.

The settings are the fastest durable ones in the peers' documentation or in our trials:

    pgqueuer        asyncpg, one connection per worker, uvloop, `pgq autovac`, a larger batch_size (its
                    docs/guides/performance-tuning.md; 256 was no faster than 64); durability `balanced`: log tables
                    unlogged, the queue itself logged
    procrastinate   async tasks with concurrency 10 (its docs/howto/production/concurrency; 30 was slower), no LISTEN,
                    finished jobs deleted (keeping them was slower)

Bulk inserts are one statement per 5,000 jobs.
"""

import asyncio
import importlib
import json
import logging
import os
import sys
from datetime import timedelta
from time import monotonic
from typing import Any

os.environ.setdefault("PGQUEUER_DURABILITY", "balanced")
_PART = 5_000
_BATCH_SIZE = int(os.environ.get("PEER_BATCH_SIZE", "64"))
_CONCURRENCY = int(os.environ.get("PEER_CONCURRENCY", "10"))
_RESULT_BYTES = int(os.environ.get("PEER_RESULT_BYTES", "0"))
_DELETE_JOBS = os.environ.get("PEER_DELETE_JOBS", "always")


def _library(name: str) -> Any:
    """Import a module that only the virtual environment has."""
    return importlib.import_module(name)


async def _go() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


class _JobCount:
    """Counts jobs."""

    def __init__(self) -> None:
        self.count, self.last = 0, monotonic()

    def one(self) -> None:
        """Count one job."""
        self.count += 1
        self.last = monotonic()

    def report(self) -> None:
        """Print the report that WorkerProcesses reads."""
        print(json.dumps({"items": self.count, "end": self.last}), flush=True)


async def pgqueuer(act: str, url: str, jobs: int) -> None:
    """pgqueuer on asyncpg."""
    lib, drain = _library("pgqueuer"), _library("pgqueuer.domain.types").QueueExecutionMode.drain
    url = url.partition("&connect_timeout=")[
        0
    ]  # asyncpg asks the server for any parameter of libpq that it does not know
    connection = await _library("asyncpg").connect(url)
    queries, done = lib.Queries(lib.AsyncpgDriver(connection)), _JobCount()
    if act == "setup":
        await queries.install()
        await queries.optimize_autovacuum()
        await connection.execute("create table result (job bigint primary key, body bytea)")
    elif act == "enqueue":
        await _go()
        for first in range(0, jobs, _PART):
            n = min(_PART, jobs - first)
            await queries.enqueue(["noop"] * n, [b"x" * (1024 if _RESULT_BYTES else 1)] * n, [0] * n)
            done.count, done.last = first + n, monotonic()
        done.report()
    else:
        worker = lib.PgQueuer(lib.AsyncpgDriver(connection))
        results = await _library("asyncpg").create_pool(url, min_size=4, max_size=4) if _RESULT_BYTES else None

        @worker.entrypoint("noop")  # type: ignore[untyped-decorator]
        async def noop(job: Any) -> None:
            if results is not None:
                await results.execute("insert into result values ($1, $2)", job.id, os.urandom(_RESULT_BYTES))
            done.one()

        await _go()
        # `run` returns after it has stored the state of the last jobs. The timeout bounds its last poll.
        await worker.run(batch_size=_BATCH_SIZE, mode=drain, dequeue_timeout=timedelta(seconds=0.05))
        done.last = monotonic()
        done.report()
    await connection.close()


async def procrastinate(act: str, url: str, jobs: int) -> None:
    """procrastinate on psycopg."""
    lib, done = _library("procrastinate"), _JobCount()
    app = lib.App(connector=lib.PsycopgConnector(conninfo=url, min_size=_CONCURRENCY, max_size=_CONCURRENCY + 2))

    @app.task(name="noop")  # type: ignore[untyped-decorator]
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
            done.last = monotonic()
        done.report()


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    peers = {"pgqueuer": pgqueuer, "procrastinate": procrastinate}
    _library("uvloop").run(peers[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4])))
