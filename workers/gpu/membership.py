"""A worker's standing in the database: its own lease, and with it the control of its engine.

join    enter the workers' table, take the engine's controller lease; stand by while another worker has it
keep    renew both until the lease lapses, by Postgres's word or by our own clock
"""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import structlog

from app import clock
from app.db.pool import Database
from app.engines import service as engines
from app.queue import service as queue
from app.queue.types import Held
from app.settings import Settings

RETRY_SECONDS = 0.5
MARGIN = 0.1  # share of the lease that is given up, so that we stop before others may start

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Status:
    """What the engine row is to say."""

    ready: bool
    reason: str
    allowance: int
    signal: str | None = None
    value: float | None = None
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Seat:
    """Worker and engine rows held together."""

    pool_id: int
    worker_id: int
    engine_id: int


class Membership:
    """Runs join and keep for ever. `controls` and `displaced` say whether the engine is ours or another worker's."""

    def __init__(self, settings: Settings, database: Database, *, model: str, url: str, mode: str, slots: int) -> None:
        self.controls = asyncio.Event()
        self.displaced = asyncio.Event()
        self._settings = settings
        self._database = database
        self.name = settings.engine_name
        self.arrival_url: str | None = None
        self._engine: dict[str, Any] = {"name": settings.engine_name, "url": url, "mode": mode, "slots": slots}
        self._model = model
        self._seat: Seat | None = None
        self._valid_until = 0.0

    async def run(
        self,
        status: Callable[[], Status],
        on_join: Callable[[int, int, int], None],
        on_beat: Callable[[Sequence[Held]], None],
        on_lose: Callable[[], None],
    ) -> None:
        """Join, keep, and on losing the lease join again, until cancelled.

        `on_join` gets the ids of pool, worker and engine, `on_beat` the leases that the queue counts as ours.
        """
        while True:
            seat = await self._join()
            on_join(seat.pool_id, seat.worker_id, seat.engine_id)
            await self._keep(seat, status, on_beat)
            log.warning("worker.lease_lost", worker=seat.worker_id)
            on_lose()
            await self.leave()

    def holds(self) -> bool:
        """Whether our own clock, too, says that the lease holds. It runs on while this process is stopped."""
        return clock.monotonic() < self._valid_until

    async def leave(self) -> None:
        """Give up engine and lease at once. Without a database they lapse by themselves."""
        seat, self._seat = self._seat, None
        if seat is None:
            return
        try:
            async with asyncio.timeout(RETRY_SECONDS * 4), self._database.durable() as conn:
                await engines.release_engine(conn, seat.engine_id, seat.worker_id)
                await queue.retire_worker(conn, seat.worker_id)
        except (psycopg.OperationalError, TimeoutError) as error:
            log.warning("worker.not_retired", worker=seat.worker_id, error=str(error).strip())

    async def _join(self) -> Seat:
        worker: tuple[int, int] | None = None
        while True:
            try:
                if worker is None or await self._renew(worker[1]) is None:
                    worker = await self._register()
                if (engine_id := await self._take(*worker)) is not None:
                    self._seat = Seat(*worker, engine_id)
                    self.displaced.clear()
                    self.controls.set()
                    log.info("worker.joined", worker=worker[1], engine=self._engine["name"], model=self._model)
                    return self._seat
                if not self.displaced.is_set():
                    log.info("worker.standing_by", worker=worker[1], engine=self._engine["name"])
                    self.controls.clear()
                    self.displaced.set()
            except (psycopg.OperationalError, TimeoutError) as error:
                log.warning("database.unavailable", verb="join", error=str(error).strip())
            await asyncio.sleep(RETRY_SECONDS)

    async def _register(self) -> tuple[int, int]:
        began = clock.monotonic()
        async with self._database.durable() as conn:
            pool_id = await engines.ensure_pool(conn, self._model)
            worker_id = await queue.register_worker(
                conn,
                pool_id=pool_id,
                host=socket.gethostname(),
                pid=os.getpid(),
                lease_seconds=self._settings.lease_seconds,
            )
        self._hold_until(began)
        return pool_id, worker_id

    async def _take(self, pool_id: int, worker_id: int) -> int | None:
        async with self._database.durable() as conn:
            return await engines.take_engine(
                conn, pool_id=pool_id, worker_id=worker_id, arrival_url=self.arrival_url, **self._engine
            )

    async def _renew(self, worker_id: int) -> list[Held] | None:
        began = clock.monotonic()
        async with self._database.relaxed() as conn:
            held = await queue.heartbeat(conn, worker_id, self._settings.lease_seconds)
        if held is not None:
            self._hold_until(began)
        return held

    def _hold_until(self, began: float) -> None:
        """Others may start when the lease, which began no earlier than `began`, is over; we stop a little before."""
        self._valid_until = began + self._settings.lease_seconds * (1 - MARGIN)

    async def _keep(self, seat: Seat, status: Callable[[], Status], on_beat: Callable[[Sequence[Held]], None]) -> None:
        """Heartbeat until the lease is lost."""
        said: Status | None = None
        pause = self._settings.heartbeat_seconds
        while True:
            try:
                async with asyncio.timeout(max(0.0, self._valid_until - clock.monotonic())):
                    held = await self._renew(seat.worker_id)
                    if held is None or not await self._report(seat, said := status()):
                        return
                on_beat(held)
                pause = self._settings.heartbeat_seconds
            except TimeoutError:
                return
            except psycopg.OperationalError as error:
                log.warning("database.unavailable", verb="heartbeat", error=str(error).strip())
                pause = min(RETRY_SECONDS, self._settings.heartbeat_seconds)
            await self._rest(pause, said, status)

    async def _rest(self, seconds: float, said: Status | None, status: Callable[[], Status]) -> None:
        """Wait for the next heartbeat, less if readiness changes."""
        until = clock.monotonic() + seconds
        while (left := until - clock.monotonic()) > 0:
            await asyncio.sleep(min(left, 0.1))
            now = status()
            if said is not None and (now.ready, now.reason) != (said.ready, said.reason):
                return

    async def _report(self, seat: Seat, status: Status) -> bool:
        async with self._database.relaxed() as conn:
            return await engines.report_engine(
                conn,
                seat.engine_id,
                seat.worker_id,
                ready=status.ready,
                reason=status.reason,
                allowance=status.allowance,
                signal=status.signal,
                value=status.value,
                threshold=status.threshold,
            )
