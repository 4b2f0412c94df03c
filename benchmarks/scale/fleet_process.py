"""One operating-system process of a simulated fleet: `python -m benchmarks.scale.fleet_process JSON`.

It holds as many worker processes of PER_PROCESS engines each as its part of the fleet needs. All of a worker that speaks to the
database or to the API is real: membership, heartbeats, claimer, result writer, and the server that hears wakes. Engines are
timed: an item takes a fixed time. It prints `ready` once every engine is controlled, and then answers each line on stdin with
what it has counted.
"""

import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from app import telemetry
from app.clock import monotonic
from app.crypto import secret_key
from app.db.pool import Connection, Database
from app.engines import catalogue
from app.engines.catalogue import Model
from app.engines.engine_report import EngineReport
from app.engines.outcome import Done, Outcome, Usage
from app.headroom.arrivals import Arrivals
from app.queue import service as queue
from app.queue.types import Lease
from app.settings import Settings
from benchmarks.harness import MODEL
from benchmarks.scale.fleet import SLOTS
from workers.gpu.arrival_events import ArrivalEvents
from workers.gpu.heartbeats import Heartbeats
from workers.gpu.http_server import HttpServer
from workers.gpu.membership import Membership
from workers.gpu.puller import Puller
from workers.gpu.requests_in_engine import ItemProgress, RequestsInEngine

PER_PROCESS = 8
ANSWER = b'{"choices": [{"message": {"content": "done"}, "finish_reason": "stop"}]}'


class Counted:
    """What the claims of this process did. `first`: by batch and worker, the second of the shared clock of its first claim."""

    def __init__(self) -> None:
        self.claims = 0
        self.first: dict[tuple[int, int], float] = {}
        self._claim = queue.claim
        queue.claim = self.claim

    async def claim(self, conn: Connection, pool_id: int, worker_id: int, **how: Any) -> Any:
        """The real claim, counted."""
        self.claims += 1
        found = await self._claim(conn, pool_id, worker_id, **how)
        leases = found if isinstance(found, list) else [found] if found else []
        for lease in leases:
            assert isinstance(lease, Lease)
            self.first.setdefault((lease.batch_id, worker_id), monotonic())
        return found

    def report(self) -> bytes:
        """All of it as JSON."""
        firsts = [(batch, worker, moment) for (batch, worker), moment in self.first.items()]
        return orjson.dumps({"claims": self.claims, "first": firsts, "at": monotonic()})


class TimedRunner:
    """Stands in for an item runner with an engine: each item takes `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.gate = asyncio.Event()
        self.ledger = RequestsInEngine()
        self.lost: set[asyncio.Task[None]] = set()
        self.calling: set[asyncio.Task[None]] = set()
        self._seconds = seconds

    async def run(
        self, task: "asyncio.Task[None]", progress: ItemProgress, tenant_id: int, on_first_token: Any
    ) -> tuple[Outcome, int]:
        """An answer after the time of an item."""
        self.calling.add(task)
        try:
            await asyncio.sleep(self._seconds)
        finally:
            self.calling.discard(task)
        return Done(ANSWER, Usage(10, 0, 10)), 1


class TimedWorker:
    """One engine and its worker."""

    def __init__(self, settings: Settings, database: Database, heartbeats: Heartbeats, model: Model, seconds: float):
        self._puller = Puller(settings, database, TimedRunner(seconds), lambda reason: None)  # type: ignore[arg-type]
        url = f"http://{settings.engine_name}.invalid"
        self._membership = Membership(
            settings,
            database,
            heartbeats,
            model=model,
            url=url,
            mode="attached",
            slots=SLOTS,
            recall=lambda seconds: None,
        )
        self._server = HttpServer(settings, secret_key(settings), metrics=bytes)
        self._events = ArrivalEvents(Arrivals(60), lambda: None, self._puller.on_wake)

    async def run(self) -> None:
        """Serve until cancelled."""
        async with self._server, asyncio.TaskGroup() as group:
            with self._server.announced(self._membership.name, self._events) as url:
                group.create_task(self._puller.run())
                await self._membership.run(self._status, self._join, self._puller.on_heartbeat, self._puller.lose, url)

    @property
    def joined(self) -> asyncio.Event:
        """Set while it controls its engine."""
        return self._membership.controls

    def _join(self, pool_id: int, worker_id: int, engine_id: int, window: int) -> None:
        self._puller.join(pool_id, worker_id, engine_id)
        self._puller.allow(SLOTS)

    def _status(self) -> EngineReport:
        held = self._puller.in_hand
        return EngineReport(True, "open", SLOTS, batch_in_flight=held, hungry=self._puller.idle)


async def main(order: dict[str, Any]) -> None:
    """Run this part of the fleet until stdin ends. `order`: see `fleet.Fleet`."""
    counted = Counted()
    settings = Settings(
        data_dir=Path(tempfile.mkdtemp()), database_url=order["url"], secret_key=order["secret"], log_level="error"
    )
    telemetry.configure(settings, "fleet")
    known = catalogue.load(settings.models_file).resolve(MODEL)
    assert known is not None
    async with Database(order["url"], size=6, application="slackwater fleet") as database, AsyncExitStack() as stack:
        group = await stack.enter_async_context(asyncio.TaskGroup())
        workers: list[TimedWorker] = []
        for number in range(order["begin"], order["end"]):
            if number % PER_PROCESS == 0 or not workers:
                times = {"every_seconds": settings.heartbeat_seconds, "lease_seconds": settings.lease_seconds}
                heartbeats = Heartbeats(database, **times)
            name = order["models"][number % len(order["models"])]
            own = settings.model_copy(update={"engine_name": f"engine-{number}"})
            worker = TimedWorker(own, database, heartbeats, replace(known, name=name, served=name), order["seconds"])
            workers.append(worker)
            group.create_task(worker.run())
        for worker in workers:
            await worker.joined.wait()
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(counted.report().decode(), flush=True)
        sys.exit(0)


if __name__ == "__main__":
    asyncio.run(main(orjson.loads(sys.argv[1])))
