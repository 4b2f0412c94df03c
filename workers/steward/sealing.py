"""The steward's work on the audit log: it seals, and looks whether what was sealed is still there. See `app.audit`; the rest is
done by maintenance workers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import NoReturn

import psycopg
import structlog
from psycopg_pool import PoolTimeout

from app import clock
from app.audit import checkpoints, sealing
from app.audit.problems import Problems
from app.audit.sealing import MOST_ROWS, Head
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.settings import Settings
from workers.steward.metrics import Metrics
from workers.steward.rest import Pace

SEAL_SECONDS = 0.5
LOOK_SECONDS = 60.0
_MOST_STEPS = 50  # transactions without a pause

log = structlog.get_logger("steward")


class AuditLog:
    """The audit log of one database, for the steward that leads."""

    def __init__(self, database: Database, settings: Settings, metrics: Metrics, pace: Pace | None = None) -> None:
        self._database, self._settings, self._metrics = database, settings, metrics
        self._pace = pace or Pace()
        self._seen: dict[str, Head] = {}
        self._problems = Problems(metrics.audit_problems)

    async def keep(self) -> None:
        """Run both steps at their intervals, until cancelled."""
        try:
            await asyncio.gather(self._repeat(SEAL_SECONDS, self.seal), self._repeat(LOOK_SECONDS, self.look))
        finally:
            self._metrics.audit_overdue.set(0)

    async def _repeat(self, seconds: float, step: Callable[[], Awaitable[None]]) -> NoReturn:
        while True:
            try:
                await step()
            except (psycopg.Error, PoolTimeout, *TRANSIENT) as error:
                log.warning("audit.waits", step=step.__name__, error=str(error.__cause__ or error).strip())
            except Exception:  # the other step goes on
                log.exception("audit.failed", step=step.__name__)
            await self._pace.pause(seconds)

    async def seal(self) -> None:
        """Seal what waits."""
        for _ in range(_MOST_STEPS):
            done = await sealing.seal(self._database)
            for account, head in done.heads.items():
                if account in self._seen and done.before[account].seq < self._seen[account].seq:
                    self._chain_broken(account, checkpoints.LOST)
                self._remember(account, head)
            for audit_id in done.missing:
                self._problems.report(f"record {audit_id} is gone before it was sealed")
            if done.rows + len(done.missing) < MOST_ROWS:
                break

    async def look(self) -> None:
        """Look whether the chains still have what was sealed and signed, and for how long a checkpoint has been due."""
        interval = timedelta(seconds=self._settings.audit_checkpoint_seconds)
        async with self._database.relaxed() as conn:
            found = await checkpoints.chains(conn, dict(self._seen))
        now = clock.now()
        self._metrics.audit_overdue.set(max((checkpoints.overdue(each, now, interval) for each in found), default=0))
        for chain in found:
            if chain.broken:
                self._chain_broken(chain.account, chain.broken)
            elif chain.head.seq:
                self._remember(chain.account, chain.head)

    def _remember(self, account: str, head: Head) -> None:
        """Remember the newest row of a chain, whoever sealed it, so that the next look misses it if it is deleted."""
        if account not in self._seen or head.seq > self._seen[account].seq:
            self._seen[account] = head

    def _chain_broken(self, account: str, problem: str) -> None:
        self._problems.report_chain(account, problem)
        self._seen.pop(account, None)
