"""The steward's work on the audit log: it seals, signs, checks and cuts. See `app.audit`."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import NoReturn

import psycopg
import structlog
from psycopg_pool import PoolTimeout

from app import clock
from app.audit import check, checkpoints, sealing
from app.audit.sealing import MOST_ROWS, Head
from app.batches import audit_events
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.errors import StorageError
from app.settings import Settings
from app.storage.store import Store
from workers.steward.metrics import Metrics
from workers.steward.rest import Pace

SEAL_SECONDS = 0.5
SIGN_SECONDS = 60.0  # between two looks for chains whose checkpoint is due
VERIFY_SECONDS = 86_400.0
FIRST_VERIFY_SECONDS = 300.0  # so that a steward that leads for a moment does not read all
CUT_SECONDS = 3600.0
RETRY_SECONDS = 600.0  # after a step that failed
_MOST_REPORTED = 1000  # problems; the command `audit verify` shows all
_MOST_STEPS = 50  # transactions without a pause

log = structlog.get_logger("steward")


class AuditLog:
    """The audit log of one database, for the steward that leads."""

    def __init__(self, database: Database, settings: Settings, metrics: Metrics, pace: Pace | None = None) -> None:
        self._database, self._settings, self._metrics = database, settings, metrics
        self._pace = pace or Pace()
        self._seen: dict[str, Head] = {}
        self._first: dict[str, int] = {}
        self._reported: set[str] = set()
        self._signer: checkpoints.Signer | None = None
        self._verified_at: float | None = None  # None: it does not lead
        metrics.audit_unverified.set_function(self._unverified_seconds)

    async def keep(self) -> None:
        """Run every step at its interval, until cancelled. A slow object store holds up no seal."""
        self._verified_at = clock.monotonic()
        try:
            await asyncio.gather(
                self._repeat(SEAL_SECONDS, self.seal),
                self._repeat(SIGN_SECONDS, self.sign),
                self._repeat(CUT_SECONDS, self.cut),
                self._repeat(VERIFY_SECONDS, self.verify, first=FIRST_VERIFY_SECONDS),
            )
        finally:
            self._verified_at = None
            self._metrics.audit_overdue.set(0)

    def _unverified_seconds(self) -> float:
        return 0.0 if self._verified_at is None else clock.monotonic() - self._verified_at

    async def _repeat(self, seconds: float, step: Callable[[], Awaitable[None]], first: float = 0) -> NoReturn:
        await asyncio.sleep(first)
        while True:
            pause = seconds
            try:
                await step()
            except (psycopg.Error, PoolTimeout, StorageError, *TRANSIENT) as error:
                log.warning("audit.waits", step=step.__name__, error=str(error.__cause__ or error).strip())
                pause = min(seconds, RETRY_SECONDS)
            except Exception:  # the other steps go on
                log.exception("audit.failed", step=step.__name__)
                pause = min(seconds, RETRY_SECONDS)
            await self._pace.pause(pause)

    async def seal(self) -> None:
        """Seal what waits."""
        for _ in range(_MOST_STEPS):
            done = await sealing.seal(self._database)
            for account, head in done.heads.items():
                if account in self._seen and done.before[account].seq < self._seen[account].seq:
                    self._chain_broken(account, checkpoints.LOST)
                self._remember(account, head)
            for audit_id in done.missing:
                self._broken(f"record {audit_id} is gone before it was sealed")
            if done.rows + len(done.missing) < MOST_ROWS:
                break

    async def sign(self) -> None:
        """Sign the chains that are due, after a look whether they still have what was sealed and signed."""
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
            if self._first.setdefault(chain.account, chain.first) != chain.first:  # somebody else has cut it
                self._first[chain.account] = chain.first
                await self._check(chain.account)
            if checkpoints.due(chain, clock.now(), interval):
                await self._checkpoint(chain.account, chain.head)
        self._metrics.audit_overdue.set(0)

    def _remember(self, account: str, head: Head) -> None:
        """Remember the newest row of a chain, whoever sealed it, so that the next look misses it if it is deleted."""
        if account not in self._seen or head.seq > self._seen[account].seq:
            self._seen[account] = head

    async def _checkpoint(self, account: str, head: Head, *, cut_days: int | None = None) -> None:
        signer = self._signer = self._signer or checkpoints.Signer(self._settings)
        made = signer.checkpoint(account, head, clock.now(), cut_days=cut_days)
        await checkpoints.store(Store.of(self._settings), made)
        async with self._database.transaction() as conn:
            await checkpoints.add(conn, made)
            await audit_events.signed(conn, made)
            rows = await checkpoints.cut(conn, made) if made.cut else 0
        if made.cut:
            self._first[account] = head.seq + 1
        log.info(
            "audit.cut" if made.cut else "audit.signed", account=account, seq=head.seq, hash=head.hash.hex(), rows=rows
        )

    async def cut(self) -> None:
        """Cut what is too old off the chains."""
        days = self._settings.audit_retention_days
        if not days:
            return
        async with self._database.relaxed() as conn:
            found = await checkpoints.cuts(conn, days)
        for account, head in found.items():
            await self._checkpoint(account, head, cut_days=days)

    async def verify(self) -> None:
        """Check the whole log."""
        await self._check(None)
        self._verified_at = clock.monotonic()

    async def _check(self, account: str | None) -> None:
        """Check one chain; None: all of them."""
        keys, days = checkpoints.known_keys(self._settings), self._settings.audit_retention_days
        async with self._database.relaxed() as conn:
            found = await check.verify(conn, Store.of(self._settings), keys, account, days)
        for problem in found.problems:
            self._broken(problem)
        log.info("audit.verified", rows=found.rows, checkpoints=found.checkpoints, problems=len(found.problems))

    def _chain_broken(self, account: str, problem: str) -> None:
        self._broken(f"{account or 'the installation'}: {problem}")
        self._seen.pop(account, None)

    def _broken(self, problem: str) -> None:
        """Report a problem once."""
        if problem not in self._reported and len(self._reported) < _MOST_REPORTED:
            self._reported.add(problem)
            self._metrics.audit_problems.inc()
            log.error("audit.broken", problem=problem)
