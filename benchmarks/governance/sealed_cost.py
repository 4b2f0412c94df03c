"""Arms: what sealed bodies cost the queue. Pairs of runs with them and without, alternating, on one server.

The keys are in a folder. A data key is wrapped once for each submit, and unwrapped once by each worker.
"""

import asyncio
from time import monotonic
from typing import Any

from app.settings import Settings
from benchmarks.governance.queue_cost import paired
from benchmarks.harness import Api, Testbed, api, part
from benchmarks.queue import drain as queue_drain
from benchmarks.queue.workload import body, fill, line, worker_processes


def ingest(testbed: Testbed, items: int, pairs: int) -> dict[str, Any]:
    """Items per second through the API process."""
    sent = body(items)

    def rate(*, governed: bool) -> float:
        settings = _settings(testbed, sealed=governed)
        with api(settings) as (_, key):
            client = Api(settings, key)
            client.submit_lines(line(0), len(line(0)))
            began = monotonic()
            client.submit_lines(sent, len(sent))
            return items / (monotonic() - began)

    return paired("ingest_sealed", rate, pairs, "sealed bodies")


def drain(testbed: Testbed, items: int, pairs: int) -> dict[str, Any]:
    """Items per second from the first claim to the last result, with four workers, which open items and seal results."""

    def rate(*, governed: bool) -> float:
        settings = _settings(testbed, sealed=governed)
        with part(settings, "workers.steward"):
            pool_id = asyncio.run(fill(settings, items))
            keys = (settings.data_dir / "keys").absolute().as_uri()
            with worker_processes(settings.database_url, pool_id, 64, keys) as workers:
                seconds, _ = workers.race()
            queue_drain.settled(settings.database_url)
        return items / seconds

    return paired("drain_sealed", rate, pairs, "sealed bodies")


def _settings(testbed: Testbed, *, sealed: bool) -> Settings:
    return testbed.settings(testbed.database(), encrypt="on" if sealed else "off")
