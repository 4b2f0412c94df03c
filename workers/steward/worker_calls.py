"""Wakes workers that wait although work is ready: what the steward itself makes ready, no API announces."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn

from app.crypto import bearer_token, secret_key
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.gateway.announcer import Announcer
from app.gateway.waker import MOST_WOKEN
from app.headroom.arrivals import ANNOUNCING
from app.queue import heartbeat, wakes
from app.settings import Settings


class WorkerCalls:
    """The calls of the steward that leads."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database, self._settings = database, settings
        self._due = asyncio.Event()

    def note(self, chunks: Mapping[str, int] | None = None) -> None:
        """Chunks may have become ready."""
        self._due.set()

    async def keep(self) -> NoReturn:
        """Wake workers after each note and each wake of this process, until cancelled."""
        token = bearer_token(secret_key(self._settings), ANNOUNCING)
        wakes.listen(self.note)
        try:
            async with Announcer(token, rest_seconds=self._settings.announce_rest_seconds) as announcer:
                while True:
                    await self._due.wait()
                    self._due.clear()
                    with suppress(*TRANSIENT):  # a worker looks by itself, a second later
                        async with self._database.relaxed() as conn:
                            urls = await heartbeat.waiting(conn, MOST_WOKEN)
                        for url in urls:
                            announcer.wake(url)
        finally:
            wakes.forget(self.note)
