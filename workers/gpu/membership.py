"""A worker's standing in the database: its own lease, and with it the control of its engine.

join    enter the workers' table, take the engine's controller lease; stand by while another worker has it
keep    renew both until the lease lapses, by Postgres's word or by our own clock
"""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import structlog

from app import clock
from app.db.pool import Connection, Database
from app.db.transient_errors import TRANSIENT
from app.engines import service as engines
from app.engines.catalogue import Model
from app.engines.service import DRAINING, NOTHING_KNOWN, Facts, Holder
from app.queue import charges
from app.queue import service as queue
from app.queue.types import HeldLease
from app.settings import Settings
from app.states import EngineIntake
from app.user_errors import Failure

RETRY_SECONDS = 0.5
MARGIN = 0.1  # share of the lease that is given up, so that we stop before others may start

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class EngineReport:
    """What the engine row is to say; see `engines.report_engine`."""

    ready: bool
    reason: str
    allowance: int
    signal: str | None = None
    value: float | None = None
    threshold: float | None = None
    detail: str | None = None
    start_seconds: float | None = None
    expected_seconds: float | None = None
    facts: Facts = NOTHING_KNOWN
    batch_in_flight: int = 0
    sync_in_flight: int = 0

    @property
    def urgent(self) -> tuple[bool, str, bool]:
        """What is reported as soon as it changes: readiness, its reason, and that a drained engine is empty."""
        return self.ready, self.reason, self.reason == DRAINING and not (self.batch_in_flight or self.sync_in_flight)


@dataclass(frozen=True, slots=True)
class Seat:
    """Worker and engine rows held together. `window`: the context window that the model is promised with, in tokens."""

    pool_id: int
    worker_id: int
    engine_id: int
    window: int


class Membership:
    """Runs join and keep for ever. `controls` and `displaced` say whether the engine is ours or another worker's.

    `recall` gets how long the engine took to come back when earlier workers had it.
    `intake`: whether the operator lets the engine take new work; None until the database has said it.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        *,
        model: Model,
        url: str,
        mode: str,
        slots: int,
        recall: Callable[[float | None], None],
    ) -> None:
        self.controls = asyncio.Event()
        self.displaced = asyncio.Event()
        self.intake: EngineIntake | None = None
        self._settings = settings
        self._database = database
        self.name = settings.engine_name
        self.arrival_url: str | None = None
        self._engine: dict[str, Any] = {"name": settings.engine_name, "url": url, "mode": mode, "slots": slots}
        self._model = model
        self._recall = recall
        self._seat: Seat | None = None
        self._former: set[int] = set()  # what we were called when we were last counted as lost
        self._valid_until = 0.0

    async def run(
        self,
        status: Callable[[], EngineReport],
        on_join: Callable[[int, int, int, int], None],
        on_beat: Callable[[Sequence[HeldLease]], None],
        on_lose: Callable[[], None],
    ) -> None:
        """Join, keep, and on losing the lease join again, until cancelled.

        `on_join` gets the ids of pool, worker and engine, and the window that is promised; `on_beat` the leases that the queue
        counts as ours. Raises Failure if a living worker has the engine's name for another engine.
        """
        while True:
            seat = await self._join()
            on_join(seat.pool_id, seat.worker_id, seat.engine_id, seat.window)
            self.displaced.clear()
            self.controls.set()  # only now: the engine has been held against the window in force
            await self._keep(seat, status, on_beat)
            log.warning("worker.lease_lost", worker=seat.worker_id)
            self.intake = None
            on_lose()
            self._former.add(seat.worker_id)
            await self.leave()

    def holds(self) -> bool:
        """Whether our own clock, too, says that the lease holds. It runs on while this process is stopped."""
        return clock.monotonic() < self._valid_until

    def in_control(self) -> bool:
        """Whether the engine is ours at this moment, by our own clock."""
        return self._seat is not None and self.holds()

    async def leave(self) -> None:
        """Give up engine and lease at once. Without a database they lapse by themselves."""
        seat, self._seat = self._seat, None
        if seat is None:
            return
        try:
            async with asyncio.timeout(RETRY_SECONDS * 4), self._database.durable() as conn:
                await engines.release_engine(conn, seat.engine_id, seat.worker_id)
                await queue.retire_worker(conn, seat.worker_id)
        except (TimeoutError, *TRANSIENT) as error:
            log.warning("worker.not_retired", worker=seat.worker_id, error=str(error).strip())

    async def _join(self) -> Seat:
        worker: tuple[int, int] | None = None
        other: Holder | None = None
        while True:
            try:
                if worker is None or await self._renew(worker[1]) is None:
                    worker = await self._register()
                if (seat := await self._take(*worker)) is not None:
                    self._seat = seat
                    log.info("worker.joined", worker=worker[1], engine=self._engine["name"], model=self._model.served)
                    return seat
                if not self.displaced.is_set():
                    log.info("worker.standing_by", worker=worker[1], engine=self._engine["name"])
                    self.controls.clear()
                    self.displaced.set()
                other = await self._same_engine(other)
            except (TimeoutError, *TRANSIENT) as error:
                log.warning("database.unavailable", verb="join", error=str(error).strip())
            await asyncio.sleep(RETRY_SECONDS)

    async def _same_engine(self, before: Holder | None) -> Holder | None:
        """Who has the engine that we wait for. Raises Failure if that is another engine, and its worker was seen to live."""
        async with self._database.relaxed() as conn:
            found = await engines.holder(conn, self.name)
        url, mode, model = self._engine["url"], self._engine["mode"], self._model.served
        if found is None:
            return None
        elsewhere = found.url != url and "attached" in (mode, found.mode)  # managed ones have a port of their own each
        if (elsewhere or found.model != model) and found.outlives(before):
            theirs, ours = f"{found.model} at {found.url}", f"{model} at {url}"
            problem = f"The engine {self.name} is {theirs}, run by another worker; this worker is for {ours}."
            raise Failure(problem, "Give this one a name that is free, such as SLACKWATER_ENGINE_NAME=engine-1.")
        return before if before and before.worker_id == found.worker_id else found

    async def _register(self) -> tuple[int, int]:
        began = clock.monotonic()
        async with self._database.durable() as conn:
            pool_id = await engines.ensure_pool(conn, self._model.served)
            worker_id = await queue.register_worker(
                conn,
                pool_id=pool_id,
                host=socket.gethostname(),
                pid=os.getpid(),
                lease_seconds=self._settings.lease_seconds,
            )
        self._hold_until(began)
        return pool_id, worker_id

    async def _take(self, pool_id: int, worker_id: int) -> Seat | None:
        model = self._model
        async with self._database.transaction() as conn:
            engine_id = await engines.take_engine(
                conn, pool_id=pool_id, worker_id=worker_id, arrival_url=self.arrival_url, **self._engine
            )
            if engine_id is None:
                return None
            self._recall(await engines.start_seconds(conn, engine_id))
            window = model.context_window
            if model.adopted:
                window = await engines.promise(conn, pool_id, self.name, window, model.task)
        return Seat(pool_id, worker_id, engine_id, window)

    async def _renew(self, worker_id: int) -> list[HeldLease] | None:
        began = clock.monotonic()
        async with self._database.relaxed() as conn:
            held = await queue.heartbeat(conn, worker_id, self._settings.lease_seconds)
            if held is not None:
                self._hold_until(began)
                await self._live_on(conn)
        return held

    async def _live_on(self, conn: Connection) -> None:
        """We were counted as lost and live: our work in hand did not kill us."""
        for worker_id in tuple(self._former):
            if (chunks := await charges.take_back(conn, worker_id)) is not None:
                self._former.discard(worker_id)
                log.info("worker.not_lost", worker=worker_id, chunks=chunks)

    def _hold_until(self, began: float) -> None:
        """Others may start when the lease, which began no earlier than `began`, is over; we stop a little before."""
        self._valid_until = began + self._settings.lease_seconds * (1 - MARGIN)

    async def _keep(
        self, seat: Seat, status: Callable[[], EngineReport], on_beat: Callable[[Sequence[HeldLease]], None]
    ) -> None:
        """Heartbeat until the lease is lost."""
        said: EngineReport | None = None
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
            except TRANSIENT as error:
                log.warning("database.unavailable", verb="heartbeat", error=str(error).strip())
                pause = min(RETRY_SECONDS, self._settings.heartbeat_seconds)
            await self._rest(pause, said, status)

    async def _rest(self, seconds: float, said: EngineReport | None, status: Callable[[], EngineReport]) -> None:
        """Wait for the next heartbeat, less if readiness changes."""
        until = clock.monotonic() + seconds
        while (left := until - clock.monotonic()) > 0:
            await asyncio.sleep(min(left, 0.1))
            now = status()
            if said is not None and now.urgent != said.urgent:
                return

    async def _report(self, seat: Seat, status: EngineReport) -> bool:
        async with self._database.relaxed() as conn:
            said = {field.name: getattr(status, field.name) for field in fields(status)}
            intake = await engines.report_engine(conn, seat.engine_id, seat.worker_id, **said)
        if intake is not None and intake != (self.intake or EngineIntake.OPEN):
            log.info("engine.intake", engine=self.name, intake=intake.value)
        self.intake = intake
        return intake is not None
