"""The gauges of the queue in `/metrics`. Their cost for the database does not depend on the number of scrapes."""

import asyncio
import math

from app import clock
from app.audit import log as audit
from app.batches import protection
from app.budgets import service as budgets
from app.db.pool import Pool
from app.db.transient_errors import TRANSIENT
from app.duties import standing
from app.metering import ledger, recent
from app.pipelines import gauges as pipeline_gauges
from app.pipelines import parked
from app.queue import overview
from app.webhooks import deliveries

PATIENCE_SECONDS = 2.0
FRESH_SECONDS = 5.0
USAGE_SECONDS = 60.0  # between two readings of hours of the ledger and of callers, which change slowly

Gauge = tuple[str, str | tuple[str, ...], float]


class QueueGauges:
    """The gauges of the queue, read through a connection of their own, at most once in `FRESH_SECONDS`."""

    def __init__(self, watch: Pool) -> None:
        self._watch = watch
        self._reading = asyncio.Lock()
        self._gauges: list[Gauge] = []
        self._read_at = -math.inf
        self._usage: list[Gauge] = []
        self._usage_read_at = -math.inf

    async def read(self) -> list[Gauge]:
        """Every gauge as (name, label or labels, value); empty while the database does not answer. One query runs at a time."""
        async with self._reading:
            if clock.monotonic() - self._read_at >= FRESH_SECONDS:
                self._gauges = await self._query()
                self._read_at = clock.monotonic()
            if self._gauges and clock.monotonic() - self._usage_read_at >= USAGE_SECONDS:
                self._usage = await self._query_usage()
                self._usage_read_at = clock.monotonic()
            return [*self._gauges, *self._usage] if self._gauges else []

    async def _query(self) -> list[Gauge]:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._watch.connection() as conn:
                queue = await overview.gauges(conn)
                money = await budgets.gauges(conn) + await ledger.gauges(conn)
                pipelines = [*await parked.gauges(conn), *await pipeline_gauges.read(conn)]
                of_duties = await standing.gauges(conn)
                return [
                    *queue,
                    *pipelines,
                    *await deliveries.gauges(conn),
                    *money,
                    *await audit.gauges(conn),
                    *of_duties,
                ]
        except (TimeoutError, *TRANSIENT):
            return []

    async def _query_usage(self) -> list[Gauge]:
        """A reading that takes too long must not hide the gauges of the queue."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._watch.connection() as conn:
                return [*await recent.gauges(conn), *await protection.gauges(conn)]
        except (TimeoutError, *TRANSIENT):
            return []
