"""The gauges of the queue in `/metrics`. Their cost for the database does not depend on the number of scrapes."""

import asyncio
import math
from contextlib import suppress

from app import clock
from app.audit import log as audit
from app.batches import protection
from app.budgets import service as budgets
from app.db.pool import Connection, Pool
from app.db.timed_reads import Away, Late, TimedReads
from app.duties import standing
from app.metering import ledger, recent
from app.pipelines import gauges as pipeline_gauges
from app.pipelines import parked
from app.queue import overview
from app.webhooks import deliveries

PATIENCE_SECONDS = 2.0
FRESH_SECONDS = 5.0
STALE_SECONDS = 60.0  # so long the last gauges stay while the database takes too long
USAGE_SECONDS = 60.0  # between two readings of hours of the ledger and of callers, which change slowly

Gauge = tuple[str, str | tuple[str, ...], float]


class QueueGauges:
    """The gauges of the queue, read through a connection of their own, at most once in `FRESH_SECONDS`."""

    def __init__(self, watch: Pool) -> None:
        self._reads = TimedReads(watch.connection, watch.failures, PATIENCE_SECONDS)
        self._reading = asyncio.Lock()
        self._asked_at = self._read_at = self._usage_asked_at = -math.inf
        self._up: float | None = None
        self._gauges: list[Gauge] = []
        self._usage: list[Gauge] = []

    async def read(self) -> list[Gauge]:
        """Every gauge as (name, label or labels, value). One query runs at a time. While the database takes too long, those that
        were read last, with their age; while it is away, and at first, none.
        """
        async with self._reading:
            if clock.monotonic() - self._asked_at >= FRESH_SECONDS:
                await self._renew()
                self._asked_at = clock.monotonic()
            if self._gauges and clock.monotonic() - self._usage_asked_at >= USAGE_SECONDS:
                await self._renew_usage()
                self._usage_asked_at = clock.monotonic()
            return [*self._about(), *self._gauges, *(self._usage if self._gauges else ())]

    def _about(self) -> list[Gauge]:
        """Whether the database is there, and how old the gauges are; nothing that is not known."""
        up = [] if self._up is None else [("database_up", "", self._up)]
        return [*up, ("gauges_age_seconds", "", clock.monotonic() - self._read_at)] if self._up else [*up]

    async def _renew(self) -> None:
        try:
            self._gauges = await self._reads.read(_gauges)
            self._up, self._read_at = 1.0, clock.monotonic()
        except Away:
            self._up, self._gauges = 0.0, []
        except Late:
            if clock.monotonic() - self._read_at >= STALE_SECONDS:
                self._gauges = []

    async def _renew_usage(self) -> None:
        """A reading that takes too long must not hide the gauges of the queue."""
        with suppress(Away, Late):
            self._usage = await self._reads.read(_usage)


async def _gauges(conn: Connection) -> list[Gauge]:
    queue = await overview.gauges(conn)
    money = await budgets.gauges(conn) + await ledger.gauges(conn)
    pipelines = [*await parked.gauges(conn), *await pipeline_gauges.read(conn)]
    of_duties = await standing.gauges(conn)
    return [*queue, *pipelines, *await deliveries.gauges(conn), *money, *await audit.gauges(conn), *of_duties]


async def _usage(conn: Connection) -> list[Gauge]:
    return [*await recent.gauges(conn), *await protection.gauges(conn)]
