"""Helpers: real maintenance workers, and what the leading steward does for them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from app.audit.problems import Problems
from app.db.pool import Database
from app.duties import standing
from app.duties.schedule import RETRY_SECONDS
from app.duties.standing import Standing
from app.settings import Settings
from app.tasks.producer import Hints
from testing.waiting import LIMIT_SECONDS, eventually, wait_for
from workers.maintenance.audit import AuditKeeper
from workers.maintenance.metrics import Metrics
from workers.maintenance.work import Work

MAINTENANCE = (sys.executable, "-m", "workers.maintenance")


@dataclass
class Process:
    """A maintenance worker and its log."""

    process: subprocess.Popen[bytes]
    log: Path

    def stop(self) -> int:
        """Send SIGTERM. Returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_SECONDS)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()


@contextmanager
def maintaining(settings: Settings, command: Sequence[str] = MAINTENANCE, **overrides: Any) -> Iterator[Process]:
    """A worker that consumes. It is killed at the end if it still runs."""
    values = {
        "data_dir": settings.data_dir,
        "database_url": settings.database_url,
        "broker_url": settings.broker_url,
        "secret_key": settings.secret_key.get_secret_value(),
        "maintenance_metrics_port": 0,
        "database_pool_size": 4,
    } | overrides
    environment = {f"SLACKWATER_{name.upper()}": str(value) for name, value in values.items()}
    log = settings.data_dir / f"maintenance-{uuid4().hex[:8]}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=os.environ | environment, stdout=out, stderr=out)
    try:
        wait_for(lambda: "maintenance.consuming" in log.read_text(), f"a worker; see {log}")
        yield Process(process, log)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        print(log.read_text()[-4000:])


async def asked(database: Database) -> list[str]:
    """Ask for what is due, as the leading steward does, and let the messages be lost."""
    async with database.relaxed() as conn:
        await standing.enter(conn)
        return await standing.ask(conn)


async def hinted(settings: Settings, names: Sequence[str]) -> None:
    """Send messages on the real broker, as often as it takes: a connection may be from before its restart."""
    hints = Hints.of(settings, settings.database_url)
    await eventually(lambda: hints.duties(names, RETRY_SECONDS))
    await hints.close()


async def make_due(database: Database) -> None:
    """Let the next period come."""
    async with database.relaxed() as conn:
        await conn.execute("update duty set due_at = now()")


def work(database: Database, settings: Settings) -> Work:
    """What duties work with, without a worker."""
    return Work(database, settings, AuditKeeper(database, settings, Problems(Metrics().audit_problems)))


async def read(database: Database) -> dict[str, Standing]:
    """How every duty stands."""
    async with database.relaxed() as conn:
        return {each.duty.name: each for each in await standing.standings(conn)}
