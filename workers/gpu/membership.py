"""A worker's lease in the database, and the control of its engine that depends on it.

join    insert the worker and take the engine; stand by while another worker controls the engine
keep    renew both until the lease ends: PostgreSQL says so, or our own clock does
"""

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from app import clock, life_signs
from app.causes import cause
from app.db import schema, session_settings
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.engines import service as engines
from app.engines.catalogue import Model
from app.engines.engine_report import EngineReport
from app.errors import SchemaMismatch, ServerUnfit
from app.queue import charges
from app.queue import service as queue
from app.queue.heartbeat import Heartbeat, HeartbeatAnswer
from app.settings import Settings
from app.states import EngineIntake
from workers.gpu.engine_holder import EngineHolder
from workers.gpu.heartbeats import Heartbeats
from workers.gpu.rest import Rest

RETRY_SECONDS = 0.5
MARGIN = 0.1  # share of the lease that we do not use, so that we stop before another worker may start

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class EngineControl:
    """The rows of a worker and of the engine that it controls. `window`: the promised context window, in tokens."""

    pool_id: int
    worker_id: int
    engine_id: int
    window: int


class Membership:
    """Repeats `join` and `keep`. `controls` is set while we control the engine, `displaced` while another worker does.

    `recall` is called with the engine's recovery time that earlier workers measured. `intake`: whether the operator lets the
    engine take new work; None until the database has answered.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        heartbeats: Heartbeats,
        *,
        model: Model,
        url: str,
        mode: str,
        slots: int,
        recall: Callable[[float | None], None],
        rest: Rest | None = None,
    ) -> None:
        self._pace = rest or Rest()
        self.controls = asyncio.Event()
        self.displaced = asyncio.Event()
        self.intake: EngineIntake | None = None
        self._settings = settings
        self._database = database
        self._heartbeats = heartbeats
        self.name = settings.engine_name
        self._arrival_url: str | None = None
        self._engine: dict[str, Any] = {"name": settings.engine_name, "url": url, "mode": mode, "slots": slots}
        self._model = model
        self._recall = recall
        self._control: EngineControl | None = None
        self._worker_id: int | None = None  # also while it stands by
        self._former_ids: set[int] = set()  # worker ids of this process whose leases were lost
        self._valid_until = 0.0

    async def run(
        self,
        status: Callable[[], EngineReport],
        on_join: Callable[[int, int, int, int], None],
        on_heartbeat: Callable[[HeartbeatAnswer], None],
        on_lose: Callable[[], None],
        arrival_url: str | None = None,
    ) -> None:
        """Join, renew, and join again whenever the lease is lost, until cancelled.

        `on_join` is called with the ids of pool, worker and engine, and the promised context window. `on_heartbeat` is called
        with the answer to each heartbeat. `arrival_url`: where gateways announce synchronous requests. Raises Failure if a
        live worker uses the engine's name for another engine.
        """
        self._arrival_url = arrival_url
        with life_signs.turning() as turn:
            await self._run(status, on_join, on_heartbeat, on_lose, turn)

    async def _run(
        self,
        status: Callable[[], EngineReport],
        on_join: Callable[[int, int, int, int], None],
        on_heartbeat: Callable[[HeartbeatAnswer], None],
        on_lose: Callable[[], None],
        turn: Callable[[], None],
    ) -> None:
        while True:
            control = await self._join(turn)
            on_join(control.pool_id, control.worker_id, control.engine_id, control.window)
            self.displaced.clear()
            self.controls.set()  # only now, because `on_join` has compared the engine with the promised window
            await self._keep(control, status, on_heartbeat, turn)
            log.warning("worker.lease_lost", worker=control.worker_id)
            self.intake = None
            on_lose()
            self._former_ids.add(control.worker_id)
            await self.leave(lapsed=True)

    def holds(self) -> bool:
        """Whether the lease is valid by our own clock, which continues while this process is stopped."""
        return clock.monotonic() < self._valid_until

    def in_control(self) -> bool:
        """Whether we control the engine now, by our own clock."""
        return self._control is not None and self.holds()

    async def leave(self, *, lapsed: bool = False) -> None:
        """Release engine and lease at once. If the database cannot be reached, they lapse later. `lapsed`: the lease has."""
        control, self._control = self._control, None
        worker_id, self._worker_id = self._worker_id, None
        if worker_id is None:
            return
        try:
            async with asyncio.timeout(RETRY_SECONDS * 4), self._database.durable() as conn:
                if control is not None:
                    await engines.release_engine(conn, control.engine_id, worker_id, lapsed=lapsed)
                await queue.retire_worker(conn, worker_id)
        except (TimeoutError, *TRANSIENT) as error:
            log.warning("worker.not_retired", worker=worker_id, error=cause(error))

    async def _join(self, turn: Callable[[], None]) -> EngineControl:
        worker: tuple[int, int] | None = None
        holder = EngineHolder(self.name, self._engine["url"], self._engine["mode"])
        while True:
            turn()
            try:
                if worker is None or await self._send(Heartbeat(worker[1])) is None:
                    worker = await self._register()
                if (control := await self._take(*worker)) is not None:
                    self._control = control
                    log.info("worker.joined", worker=worker[1], engine=self._engine["name"], model=self._model.served)
                    return control
                other = await holder.look(self._database, self._model.served)
                if not self.displaced.is_set():
                    behind = f"{other.worker}, engine {other.name}" if other else "a worker that has just left"
                    log.info("worker.standing_by", worker=worker[1], engine=self.name, behind=behind)
                    self.controls.clear()
                    self.displaced.set()
            except (TimeoutError, *TRANSIENT) as error:
                log.warning("database.unavailable", verb="join", error=cause(error))
            except (SchemaMismatch, ServerUnfit) as error:
                log.warning("worker.waits_for_schema", error=error.message)
            await asyncio.sleep(RETRY_SECONDS)

    async def _register(self) -> tuple[int, int]:
        began = clock.monotonic()
        async with self._database.durable() as conn:
            await schema.require(conn)
            await session_settings.require(conn)
            pool_id = await engines.ensure_pool(conn, self._model.served)
            worker_id = await queue.register_worker(
                conn,
                pool_id=pool_id,
                host=socket.gethostname(),
                pid=os.getpid(),
                lease_seconds=self._settings.lease_seconds,
            )
        self._hold_until(began)
        self._worker_id = worker_id
        return pool_id, worker_id

    async def _take(self, pool_id: int, worker_id: int) -> EngineControl | None:
        model, url = self._model, self._engine["url"]
        async with self._database.relaxed() as conn:
            if await engines.is_taken(conn, name=self.name, url=url, worker_id=worker_id):
                return None
        async with self._database.transaction() as conn:
            engine_id = await engines.take_engine(
                conn, pool_id=pool_id, worker_id=worker_id, arrival_url=self._arrival_url, **self._engine
            )
            if engine_id is None:
                return None
            self._recall(await engines.start_seconds(conn, engine_id))
            window = model.context_window
            if model.adopted:
                window = await engines.promise(conn, pool_id, self.name, window, model.task)
        return EngineControl(pool_id, worker_id, engine_id, window)

    async def _send(self, sent: Heartbeat) -> HeartbeatAnswer | None:
        began = clock.monotonic()
        answer = await self._heartbeats.send(sent)
        if answer is not None:
            self._hold_until(began)
        return answer

    async def _take_back_charges(self) -> None:
        """This process was counted as lost but is alive, so its items did not kill it: take the charges back."""
        for worker_id in tuple(self._former_ids):
            async with self._database.relaxed() as conn:
                chunks = await charges.take_back(conn, worker_id)
            if chunks is not None:
                self._former_ids.discard(worker_id)
                log.info("worker.not_lost", worker=worker_id, chunks=chunks)

    def _hold_until(self, began: float) -> None:
        """Note a lease that began at `began` or later. We stop before its end, because another worker may start then."""
        self._valid_until = began + self._settings.lease_seconds * (1 - MARGIN)

    async def _keep(
        self,
        control: EngineControl,
        status: Callable[[], EngineReport],
        on_heartbeat: Callable[[HeartbeatAnswer], None],
        turn: Callable[[], None],
    ) -> None:
        """Heartbeat until the lease, or the control of the engine, is lost."""
        reported: EngineReport | None = None
        while True:
            turn()
            until = self._heartbeats.next()
            try:
                async with asyncio.timeout(max(0.0, self._valid_until - clock.monotonic())):
                    reported = status()
                    answer = await self._send(Heartbeat(control.worker_id, control.engine_id, reported))
                if answer is None or answer.intake is None:
                    return
                self._note_intake(answer.intake)
                on_heartbeat(answer)  # before charges: the lease holds again, so requests may be sent at once
                async with asyncio.timeout(max(0.0, self._valid_until - clock.monotonic())):
                    await self._take_back_charges()
            except TimeoutError:
                return
            except TRANSIENT as error:
                log.warning("database.unavailable", verb="heartbeat", error=cause(error))
                until = min(until, clock.monotonic() + RETRY_SECONDS)
            await self._rest(until, reported, status)

    async def _rest(self, until: float, reported: EngineReport | None, status: Callable[[], EngineReport]) -> None:
        """Wait until this monotonic second, or until an urgent value changes."""
        while (left := until - clock.monotonic()) > 0:
            await self._pace.pause(min(left, 0.1), most=left)
            now = status()
            if reported is not None and now.urgent != reported.urgent:
                return

    def _note_intake(self, intake: EngineIntake) -> None:
        if intake != (self.intake or EngineIntake.OPEN):
            log.info("engine.intake", engine=self.name, intake=intake.value)
        self.intake = intake
