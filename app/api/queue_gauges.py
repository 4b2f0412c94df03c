"""The gauges of the queue in `/metrics`. Their cost for the database does not depend on the number of scrapes."""

import asyncio
import math

from app import clock
from app.db.pool import Pool
from app.db.transient_errors import TRANSIENT
from app.metering import budgets, ledger
from app.queue import funding, overview
from app.webhooks import deliveries

PATIENCE_SECONDS = 2.0
FRESH_SECONDS = 5.0


class QueueGauges:
    """The gauges of the queue, read through a connection of their own, at most once in `FRESH_SECONDS`."""

    def __init__(self, watch: Pool) -> None:
        self._watch = watch
        self._reading = asyncio.Lock()
        self._gauges: list[tuple[str, str, float]] = []
        self._read_at = -math.inf

    async def read(self) -> list[tuple[str, str, float]]:
        """Every gauge as (name, label, value); empty while the database does not answer. One query runs at a time."""
        async with self._reading:
            if clock.monotonic() - self._read_at >= FRESH_SECONDS:
                self._gauges = await self._query()
                self._read_at = clock.monotonic()
            return self._gauges

    async def _query(self) -> list[tuple[str, str, float]]:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._watch.connection() as conn:
                queue = await overview.gauges(conn) + await funding.gauges(conn)
                money = await budgets.gauges(conn, await funding.beyond(conn)) + await ledger.gauges(conn)
                return queue + await deliveries.gauges(conn) + money
        except (TimeoutError, *TRANSIENT):
            return []
