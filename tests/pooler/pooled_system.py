"""An installation whose parts reach the database through one PgBouncer, which is killed and started again under load."""

import asyncio
import traceback
from pathlib import Path

from testing.pgbouncer import PgBouncer
from tests.crash.checker import rest
from tests.crash.client import Client
from tests.crash.history import History
from tests.crash.load import Load
from tests.crash.logs import judge_logs
from tests.crash.part import WORKER
from tests.crash.system import System
from tests.crash.verdict import judge

CLIENTS = 3
WORKERS = {"worker-0": 0, "worker-1": 1}
MODULES = {
    "api": "app.api",
    "steward-0": "workers.steward",
    "maintenance": "workers.maintenance",
    "notifier": "workers.notifier",
    **dict.fromkeys(WORKERS, WORKER),
}
SERVER_CONNECTIONS = 6  # fewer than the parts have to the pooler
AWAY_SECONDS = 0.5


class PooledSystem(System):
    """The pooler is there from the first migration on."""

    modules = MODULES
    workers = WORKERS
    pooler: PgBouncer

    def upstream(self) -> Path:
        """The pooler's socket."""
        return self.pooler.socket

    async def restart_pooler(self) -> None:
        """Kill it, and start it again."""
        self.history.fault("SIGKILL of PgBouncer")
        await asyncio.to_thread(self.pooler.kill)
        await asyncio.sleep(AWAY_SECONDS)
        await asyncio.to_thread(self.pooler.start)

    async def close(self, keep_logs: bool) -> Path | None:
        """Stop everything."""
        if hasattr(self, "pooler"):
            self.pooler.kill()
        return await super().close(keep_logs)

    async def _migrate(self) -> None:
        await super()._migrate()
        self.pooler = PgBouncer(self.ground.folder / "pooler", self.postgres.url, default_pool_size=SERVER_CONNECTIONS)
        await asyncio.to_thread(self.pooler.start)

    def _own(self, name: str) -> dict[str, object]:
        return {**super()._own(name), "database_direct_url": self.postgres.url}


async def attacked(seed: int, restarts: int, pause_seconds: float) -> History:
    """The judged history of a run in which the pooler is restarted so many times, each after a pause."""
    history = History()
    system = PooledSystem(history, seed)
    try:
        await system.start()
        await _run(system, history, seed, restarts, pause_seconds)
    except Exception:
        history.wrong("broken_runs", traceback.format_exc())
    finally:
        judge_logs(history, system.ground.logs)
        kept = await system.close(keep_logs=not history.sound)
        if kept:
            history.details.append(f"logs of all parts: {kept}")
    return history


async def _run(system: PooledSystem, history: History, seed: int, restarts: int, pause_seconds: float) -> None:
    client, enough = Client(system, history), asyncio.Event()
    load = Load(client, history, seed)
    try:
        await client.start()
        async with asyncio.TaskGroup() as clients:
            for number in range(CLIENTS):
                clients.create_task(load.run(number, enough))
            for _ in range(restarts):
                await asyncio.sleep(pause_seconds)
                await system.restart_pooler()
            await asyncio.sleep(pause_seconds)
            enough.set()
        await rest(system, history, load)
        await judge(system, history)
    finally:
        await client.close()
