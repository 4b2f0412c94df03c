"""The system under test: real processes of every part, each with its own proxy to one PostgreSQL server."""

import asyncio
import ctypes
import os
import random
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from app import processes
from app.cli.key import create_key
from app.db import migrate
from app.db.pool import Database
from app.environment import child_environment
from app.queue import partitions
from app.settings import Settings
from app.tenants.key_scope import EVERYTHING
from testing.waiting import eventually, is_ok
from tests import sets
from tests.crash import money
from tests.crash.engines import LoggedEngine, Receiver
from tests.crash.history import History, Stop
from tests.crash.installation import Postgres, RunFolder
from tests.crash.part import SKEW, WORKER
from tests.wire import Wire

ROOT = Path(__file__).parents[2]
MARK = "SLACKWATER_CRASH"
LEASE_SECONDS = 2.0  # a fifth of the default, so that many leases lapse in a short run
BUDGET_TOKENS = 1_000_000  # of the first account; more than its items can use
TENANTS = money.ACCOUNTS
TALKER = "talker"  # has conversations, and no budget, which would get back late what a killed API held of it
WORKERS = {"worker-0": 0, "worker-1": 1, "worker-2": 2, "worker-3": 3, "standby": 0}  # name → engine
HOSTS = (  # the parts that stop together
    ("api", "steward-0", "worker-0", "worker-1"),
    ("steward-1", "maintenance", "notifier", "worker-2", "worker-3", "standby"),
)
MODULES = {
    "api": "app.api",
    "steward-0": "workers.steward",
    "steward-1": "workers.steward",
    "maintenance": "workers.maintenance",
    "notifier": "workers.notifier",
    **dict.fromkeys(WORKERS, WORKER),
}
PART = Path(__file__).with_name("part.py")
# Exit codes that are valid after each signal. SIGTERM itself is one: it can come before Python has a handler.
ENDS = {signal.SIGKILL: (-signal.SIGKILL,), signal.SIGTERM: (0, -signal.SIGTERM)}
_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _dies_with_us() -> None:
    """Between fork and exec: make the kernel send SIGKILL to the child when we die, even if it is stopped."""
    _libc.prctl(_SET_PDEATHSIG, signal.SIGKILL)


@dataclass(frozen=True)
class Code:
    """What a part runs: an interpreter, and a folder whose packages come before the interpreter's own ('': none do)."""

    python: str = sys.executable
    folder: str = str(ROOT)

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment for this code."""
        return {**environment, "PYTHONPATH": self.folder}


@dataclass(eq=False)
class Part:
    """One process. It is restarted whenever it ends."""

    name: str
    module: str
    settings: Settings
    wire: Wire
    mark: str
    log: Path
    history: History
    code: Code = field(default_factory=Code)  # from the next start on
    skew: float = 0.0
    ends: dict[int, set[int]] = field(default_factory=dict)  # valid exit codes of the pids that got a signal
    process: asyncio.subprocess.Process | None = None

    async def keep(self) -> None:
        """Run the process, and start it again whenever it ends."""
        while True:
            environment = child_environment(self.settings, {MARK: self.mark, SKEW: str(self.skew)})
            with self.log.open("ab") as log:
                self.process = await asyncio.create_subprocess_exec(
                    *(self.code.python, "-P", str(PART), self.module),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self.code.environment(environment),
                    cwd=ROOT,
                    start_new_session=True,
                    preexec_fn=_dies_with_us,
                )
            code = await self.process.wait()
            if code not in self.ends.get(self.process.pid, ()):
                self.history.wrong("unexpected_exits", f"{self.name} ({self.process.pid}) ended with code {code}")
            await asyncio.sleep(0.1)

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self.process is not None and self.process.returncode is None

    def send(self, number: signal.Signals) -> int | None:
        """Send a signal to the process. Returns its pid, or None if it is not running."""
        if not self.running:
            return None
        assert self.process
        self.ends.setdefault(self.process.pid, set()).update(ENDS.get(number, ()))
        with suppress(ProcessLookupError):
            self.process.send_signal(number)
            return self.process.pid
        return None

    async def stop_for(self, seconds: float) -> None:
        """Send SIGSTOP, and SIGCONT after so many seconds."""
        pid = self.send(signal.SIGSTOP)
        if pid is None:
            return
        stop = Stop(pid, time.time())
        self.history.stops.append(stop)
        try:
            await asyncio.sleep(seconds)
        finally:
            stop.ended = time.time()
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            self.history.log_line(f"SIGCONT {self.name} ({pid})")


class System:
    """One installation. `modules` has the parts by name; `workers` those among them that have an engine, by its number."""

    modules: Mapping[str, str] = MODULES
    workers: Mapping[str, int] = WORKERS
    clients = 6  # of the load
    quick: Mapping[str, Any] = {  # so that much happens in a short run
        "steward_seconds": 0.1,
        "chunk_items": 16,
        "flush_items": 8,
        "batch_max_in_flight": 4,
        "drain_seconds": 2,
        "webhook_sweep_seconds": 0.5,
        "webhook_rehint_seconds": 2,
        "webhook_timeout_seconds": 5,
    }

    def __init__(self, history: History, seed: int, lease: float = LEASE_SECONDS) -> None:
        self.history = history
        self.ground = RunFolder()
        self._mark = str(self.ground.folder)
        self.settings = Settings(
            data_dir=self.ground.disk,
            models_file=money.models_file(self.ground.folder),
            secret_key="test-secret-key-of-at-least-32-bytes!",
            port=processes.free_port(),
            lease_seconds=lease,
            heartbeat_seconds=lease / 5,
            webhook_allow_private="loopback",
            worker_metrics_port=0,
            notifier_metrics_port=0,
            maintenance_metrics_port=0,
            steward_metrics_port=0,
            database_pool_size=4,
            log_format="json",
        ).model_copy(update=dict(self.quick))
        self.postgres = Postgres(self.settings, history)
        count = len(set(self.workers.values()))
        self.engines = [LoggedEngine(f"engine-{n}", history, random.Random(f"{seed}/engine/{n}")) for n in range(count)]
        self.receiver = Receiver(history)
        self.parts: dict[str, Part] = {}
        self.keys: dict[str, str] = {}
        self.url = f"http://127.0.0.1:{self.settings.port}"
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start every part and wait until the API is ready."""
        sets.count_start()
        await self.postgres.start()
        for knob in ("max_wal_size = '64MB'", "min_wal_size = '32MB'", "log_min_messages = 'fatal'"):
            await self.postgres.rows(f"alter system set {knob}")
        await self.postgres.rows("select pg_reload_conf()")
        await self._migrate()
        for engine in self.engines:
            await engine.__aenter__()
        await self.receiver.start()
        for name in self.modules:
            await self._begin(name)
        self._tasks.append(asyncio.create_task(self.postgres.keep()))
        await self._create_accounts()
        await self.until_ready()

    async def _migrate(self) -> None:
        await asyncio.to_thread(migrate.upgrade, self.postgres.url)
        async with Database(self.postgres.url, size=1) as database, database.transaction() as conn:
            await partitions.create(conn, self.settings.partition_days_ahead)

    async def _create_accounts(self) -> None:
        for tenant in (*TENANTS, TALKER):
            self.keys[tenant] = await asyncio.to_thread(create_key, self.direct, tenant, "crash", 1, scope=EVERYTHING)
        await money.begin(self.postgres, self.settings.models_file, BUDGET_TOKENS)

    @property
    def direct(self) -> Settings:
        """The settings with the URL that leads directly to the server."""
        return self.settings.model_copy(update={"database_url": self.postgres.url})

    async def _begin(self, name: str) -> None:
        wire = Wire(self.ground.folder / "via" / name, self.upstream)
        await wire.start()
        settings = self.settings.model_copy(update={"database_url": wire.url, **self._own(name)})
        log = self.ground.logs / f"{name}.log"
        part = self.parts[name] = Part(name, self.modules[name], settings, wire, self._mark, log, self.history)
        self._tasks.append(asyncio.create_task(part.keep()))

    def _own(self, name: str) -> dict[str, object]:
        """The settings of one part that others do not have."""
        if (engine := self.workers.get(name)) is None:
            return {}
        return {"engine_name": f"engine-{engine}", "engine_url": self.engines[engine].url}

    def upstream(self) -> Path:
        """The socket that leads to the database."""
        return self.postgres.socket()

    async def until_ready(self) -> None:
        """Wait for the API and its database."""
        async with httpx.AsyncClient(base_url=self.url, timeout=2, trust_env=False) as client:
            await eventually(lambda: client.get("/ready"), f"the API is ready; see {self.ground.logs}", until=is_ok)

    async def heal(self) -> None:
        """End every fault that may still be active."""
        self.ground.clear()
        for part in self.parts.values():
            part.wire.release()
            part.send(signal.SIGCONT)
        await self.until_ready()

    async def close(self, keep_logs: bool) -> Path | None:
        """Stop everything and remove the folder. Returns where the logs are, if they are kept."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while pids := processes.marked(MARK, self._mark):
            processes.kill(pids)
            await asyncio.sleep(0.05)
        for part in self.parts.values():
            await part.wire.close()
        for engine in self.engines:
            if engine.port:
                await engine.__aexit__()
        await self.receiver.close()
        return await asyncio.to_thread(self.ground.close, keep_logs)


class Shipped(System):
    """With the settings that users have."""

    quick: Mapping[str, Any] = {}


class Small(System):
    """One part of each kind, and a few clients."""

    modules: Mapping[str, str] = {
        name: MODULES[name] for name in ("api", "steward-0", "maintenance", "notifier", "worker-0")
    }
    workers: Mapping[str, int] = {"worker-0": WORKERS["worker-0"]}
    clients = 2
