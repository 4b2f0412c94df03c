"""The steward's work on budgets: see `app.batches.funding`."""

import structlog

from app import clock
from app.batches import funding
from app.batches.funding import LaneMoves
from app.db.pool import Database
from app.engines import catalogue
from app.engines.rate_card import Work
from app.queue.funding import MOST_READY
from app.settings import Settings

TURN_SECONDS = 1.0
RECOUNT_SECONDS = 60.0

log = structlog.get_logger("steward")


class Money:
    """The budgets of one database. `run` once a round. `hurries`: the last one changed so many chunks that the next one should
    follow soon, before workers have taken all that is funded ahead.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._moves = LaneMoves()
        self._turn_at = self._recount_at = 0.0
        self.hurries = False

    async def run(self) -> bool:
        """Move, renew and fund. Returns whether chunks changed."""
        moved, now, self.hurries = 0, clock.monotonic(), False
        models = catalogue.load(self._settings.models_file).priced(Work.BATCH, clock.now())
        if now >= self._turn_at:
            moved = await self._moves.run(self._database, models)
            async with self._database.relaxed() as conn, conn.transaction():
                await funding.turn(conn)
            self._turn_at = now + TURN_SECONDS
        if now >= self._recount_at:
            await self._recount()
            self._recount_at = now + RECOUNT_SECONDS
        funded = await funding.fund(self._database, models)
        self.hurries = moved + funded > MOST_READY // 2
        if moved:
            log.info("budget.moved", chunks=moved)
        return bool(moved or funded)

    async def _recount(self) -> None:
        async with self._database.relaxed() as conn, conn.transaction():
            drifts = await funding.recount(conn)
        for drift in drifts:
            log.warning("budget.drift", tenant=drift.tenant_id, budget=drift.name, amount=drift.amount)
