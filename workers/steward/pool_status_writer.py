"""Keeps `pool_status` up to date, beside the rounds: with a large backlog one look takes longer than a round may."""

import structlog

from app import clock
from app.budgets import queued
from app.causes import cause
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.queue import pool_status
from workers.steward.rest import Pace

SECONDS = 1.0  # between two looks
SHARE = 0.02  # of the time, at most, is spent on looking; so a long look comes less often
REST_SECONDS = 5.0  # between two looks while the steward rests
LONGEST_SECONDS = 20.0  # between two looks; a row that is older than a minute is not used

log = structlog.get_logger("steward")


class PoolStatusWriter:
    """Writes the status of the pools while this steward leads."""

    def __init__(self, database: Database, pace: Pace | None = None) -> None:
        self._database = database
        self._pace = pace or Pace()

    async def keep(self) -> None:
        """Write until cancelled."""
        while True:
            began = clock.monotonic()
            try:
                async with self._database.relaxed() as conn:
                    await pool_status.write(conn, await queued.asking(conn))
            except TRANSIENT as error:  # the rounds warn of an outage
                log.debug("database.unavailable", verb="pool_status", error=cause(error))
            await self._pace.pause(pause(clock.monotonic() - began), longest=REST_SECONDS)


def pause(took: float) -> float:
    """Seconds until the next look, after one that took so many."""
    return min(LONGEST_SECONDS, max(SECONDS, took / SHARE))
