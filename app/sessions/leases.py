"""The synchronous turns of this process: renews their leases, and ends those whose callers are gone."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.sessions import ending, service, sql


class TurnLeases:
    """The turns that run in this process. Run `keep` beside it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._running: dict[UUID, UUID] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def add(self, session_id: UUID, turn_id: UUID) -> None:
        """Renew the lease of this turn from now on."""
        self._running[turn_id] = session_id

    def done(self, turn_id: UUID) -> None:
        """The turn has ended."""
        self._running.pop(turn_id, None)

    def give_up(self, turn_id: UUID, verb: str) -> None:
        """End a turn without an answer, beside the caller, which may be cancelled."""
        self.done(turn_id)
        task = asyncio.create_task(self._give_up(turn_id, verb))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _give_up(self, turn_id: UUID, verb: str) -> None:
        with suppress(*TRANSIENT):  # then its lease runs out
            await ending.give_up(self._database, turn_id, verb)

    async def keep(self) -> None:
        """Renew the leases, until cancelled."""
        while True:
            await asyncio.sleep(service.LEASE_SECONDS / 3)
            if self._running:
                with suppress(*TRANSIENT):
                    await self._renew()

    async def _renew(self) -> None:
        lease = timedelta(seconds=service.LEASE_SECONDS)
        turns, sessions = list(self._running), list(self._running.values())
        async with self._database.relaxed() as conn:
            await conn.execute(sql.RENEW, {"lease": lease, "turns": turns, "sessions": sessions})
