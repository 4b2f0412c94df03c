"""Signs, cuts and checks the audit log. The steward seals it, and looks whether what was sealed is there. See `app.audit`."""

from datetime import timedelta

import structlog

from app import clock
from app.audit import check, checkpoints
from app.audit.problems import Problems
from app.audit.sealing import Head
from app.batches import audit_events
from app.db.pool import Database
from app.settings import Settings
from app.storage.store import Store

log = structlog.get_logger("maintenance")


class AuditKeeper:
    """The audit log of one database. It remembers where each chain begins, to see who has cut it."""

    def __init__(self, database: Database, settings: Settings, problems: Problems) -> None:
        self._database, self._settings, self._problems = database, settings, problems
        self._first: dict[str, int] = {}
        self._signer: checkpoints.Signer | None = None

    async def sign(self) -> None:
        """Sign the chains that are due, and check those that somebody else has cut."""
        interval = timedelta(seconds=self._settings.audit_checkpoint_seconds)
        async with self._database.relaxed() as conn:
            found = await checkpoints.chains(conn, {})
        for chain in found:
            if self._first.setdefault(chain.account, chain.first) != chain.first:
                self._first[chain.account] = chain.first
                await self._check(chain.account)
            if checkpoints.due(chain, clock.now(), interval):
                await self._checkpoint(chain.account, chain.head)

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

    async def _check(self, account: str | None) -> None:
        """Check one chain; None: all of them."""
        keys, days = checkpoints.known_keys(self._settings), self._settings.audit_retention_days
        async with self._database.relaxed() as conn:
            found = await check.verify(conn, Store.of(self._settings), keys, account, days)
        for problem in found.problems:
            self._problems.report(problem)
        log.info("audit.verified", rows=found.rows, checkpoints=found.checkpoints, problems=len(found.problems))
