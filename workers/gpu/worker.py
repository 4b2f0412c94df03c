"""The worker of one engine.

membership   a lease in the database, and control of the engine
engine       the child process of a managed engine
health       whether the engine answers and has the model
control      how many batch requests may be in flight, by telemetry
puller       claims chunks, runs their items, stores their results
server       the process's HTTP server, where gateways announce synchronous requests
door         the socket where the engine's door announces them
journal      the decision log
samples      what the engine did, every ten seconds
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import structlog

from app.crypto import secret_key
from app.db.pool import Database
from app.engines.adoption import DOWN
from app.engines.catalogue import Model
from app.engines.client import EngineClient
from app.engines.dialects import VLLM
from app.engines.engine_key import engine_headers
from app.engines.engine_report import DRAINING, EngineReport
from app.engines.outcome import EngineDown
from app.engines.requests import Target
from app.headroom.decision_log import DecisionLog
from app.queue.heartbeat import HeartbeatAnswer
from app.settings import Settings
from app.states import EngineIntake
from workers.gpu import metrics
from workers.gpu.arrival_events import ArrivalEvents
from workers.gpu.arrival_socket import ArrivalSocket
from workers.gpu.body_store import BodyStore
from workers.gpu.control_loop import Controlled, ControlLoop
from workers.gpu.ending import Ending, first_of
from workers.gpu.engine_health import EngineHealth
from workers.gpu.engine_samples import EngineSamples
from workers.gpu.heartbeats import Heartbeats
from workers.gpu.http_server import HttpServer
from workers.gpu.item_runner import ItemRunner
from workers.gpu.membership import Membership
from workers.gpu.puller import Puller
from workers.gpu.recovery_time import RecoveryTime
from workers.gpu.rest import Rest
from workers.gpu.tuning import TUNING, WorkerTuning

BLIND = "ruled from outside (L1), by a cap and by latency only: it does not show its load"

log = structlog.get_logger()


class WorkerEngine(Controlled, Protocol):
    """A managed or an attached engine. `run` ends only by cancellation or with an error."""

    @property
    def mode(self) -> str:
        """`managed` or `attached`."""

    @property
    def comeback(self) -> RecoveryTime:
        """When it should answer again."""

    @property
    def ended(self) -> str | None:
        """Why the process before the one that is starting ended; None: that is not known, or it has answered since."""

    def seen(self, slots: int | None) -> None:
        """Take the number of slots that it reports; None: it reports none."""

    async def run(self, healthy: Callable[[], Awaitable[bool]], controls: Callable[[], bool]) -> None:
        """Keep it running. `controls`: whether we control it now."""


class Worker:
    """Builds the parts and runs them until it is told to end. `settings`: those of its engine.

    While another worker controls the engine it waits or, unless it `stands_by`, ends. `has_controlled`: whether it ever
    controlled the engine itself.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        model: Model,
        engine: WorkerEngine,
        *,
        server: HttpServer,
        heartbeats: Heartbeats,
        tuning: WorkerTuning = TUNING,
        stands_by: bool = True,
    ) -> None:
        self._engine = engine
        self._model = model
        self._server = server
        self._stands_by = stands_by
        self.has_controlled = False
        rest = Rest()
        secret = secret_key(settings)
        headers = engine_headers(settings, secret, settings.engine_name, engine.mode)
        dialect = settings.engine_dialect if engine.mode == "attached" else VLLM.name
        limit = settings.request_timeout_seconds
        self._client = EngineClient(engine.url, headers, timeout_seconds=limit, dialect=dialect)
        self._bodies = BodyStore(settings, database)
        self._membership = Membership(
            settings,
            database,
            heartbeats,
            model=model,
            url=engine.url,
            mode=engine.mode,
            slots=engine.slots,
            recall=engine.comeback.recall,
            rest=rest,
        )
        self._runner = self._new_runner(settings, secret, tuning)
        self._health = EngineHealth(
            self._client, self._runner, model, engine.mode, engine.comeback, tuning, on_slots=engine.seen, rest=rest
        )
        self._puller = Puller(settings, database, self._runner, self._down, tuning, rest)
        self._journal = DecisionLog(
            database, settings.engine_name, keep_days=settings.decision_days, keep_rows=settings.decision_rows
        )
        self._control = ControlLoop(
            settings, engine, self._runner, self._puller, self._journal, self._serving, headers, rest
        )
        self._samples = EngineSamples(
            database, self._control, self._puller, self._runner.ledger, lambda: self._obstacle
        )
        self._events = ArrivalEvents(self._control.arrivals, self._control.on_arrival, self._puller.on_wake)
        self._door = ArrivalSocket(Path(settings.page_dir) if settings.page_dir else None, self._events)

    def _new_runner(self, settings: Settings, secret: bytes, tuning: WorkerTuning) -> ItemRunner:
        model = self._model
        return ItemRunner(
            self._client,
            Target.of(model),
            secret,
            settings.request_attempts,
            self._bodies,
            # A continuation bypasses the engine's reasoning parser, and an adopted model may have one.
            continues="reasoning" not in model.capabilities and not model.adopted,
            may_send=self._membership.holds,
            probe_pause_seconds=tuning.probe_pause_seconds,
        )

    async def run(self, ending: Ending) -> None:
        """Serve until told to end, then drain and leave. Raises the error that makes serving impossible, as StoreNotShared."""
        async with self._client, self._door:
            with self._server.announced(self._membership.name, self._events) as arrival_url:
                try:
                    await self._serve(ending, arrival_url)
                finally:
                    await self._journal.flush()
                    await self._membership.leave()
        log.info("worker.stopped")
        if self._bodies.refusal is not None:
            raise self._bodies.refusal

    async def _serve(self, ending: Ending, arrival_url: str) -> None:
        async with asyncio.TaskGroup() as group:
            parts = [group.create_task(part) for part in self._parts(arrival_url)]
            # By whoever started us, because our object store lacks the bodies of items, or because the engine is another's.
            reasons = [ending.finishing.wait(), self._bodies.refused.wait()]
            await first_of(*reasons, *([] if self._stands_by else [self._membership.displaced.wait()]))
            await self._puller.drain(ending.returning)
            for part in parts:
                part.cancel()

    def _parts(self, arrival_url: str) -> list[Coroutine[None, None, None]]:
        return [
            self._membership.run(self._status, self._join, self._on_heartbeat, self._lose, arrival_url),
            self._tend(),
            self._health.run(),
            self._control.run(),
            self._puller.run(),
            self._journal.run(),
            self._samples.run(),
        ]

    def _join(self, pool_id: int, worker_id: int, engine_id: int, window: int) -> None:
        self.has_controlled = True
        self._health.expect(window)
        self._journal.engine_id = self._samples.engine_id = engine_id
        self._puller.join(pool_id, worker_id, engine_id)

    def _lose(self) -> None:
        """Another worker may control the engine now."""
        self._samples.engine_id = None
        self._puller.lose()

    def _on_heartbeat(self, answer: HeartbeatAnswer) -> None:
        """After a heartbeat: what the queue knows, and whether an operator drains the engine. While it cannot be used, what has
        come out of it goes back, too.
        """
        self._control.on_slack(answer.slack)
        self._puller.on_heartbeat(answer)
        if self._obstacle is not None:
            self._puller.withdraw(abort=self._membership.intake == EngineIntake.RETURNING)

    async def _tend(self) -> None:
        """Run the engine while we control it; a standby worker runs none."""
        while True:
            await self._membership.controls.wait()
            engine = asyncio.ensure_future(self._engine.run(self._client.healthy, self._membership.in_control))
            displaced = asyncio.ensure_future(self._membership.displaced.wait())
            try:
                await asyncio.wait({engine, displaced}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                displaced.cancel()
                engine.cancel()
                await asyncio.wait({engine})
            if not engine.cancelled():
                engine.result()

    def _serving(self) -> bool:
        ours = self._membership.controls.is_set() and self._membership.intake == EngineIntake.OPEN
        return ours and self._health.fault is None

    def _status(self) -> EngineReport:
        health, comeback = self._health, self._engine.comeback
        expected = comeback.expected() if health.fault == DOWN else None
        seen = health.facts(inside=self._control.inside, obstacle=self._control.harvest.obstacle)
        facts = replace(seen, slots=self._control.slots, problems=seen.problems + self._control.problems)
        inside = self._puller.in_hand, self._control.sync_open, self._puller.idle, self._puller.in_engine
        rest = comeback.learned, expected, facts, *inside
        if self._drained:
            return EngineReport(health.fault is None, DRAINING, 0, None, None, None, None, *rest)
        if health.fault is not None:
            theirs, promised = health.lack or (None, None)
            signal = "window_tokens" if promised else None
            ended = self._engine.ended if health.fault == DOWN else None
            return EngineReport(False, health.fault, 0, signal, theirs, promised, ended, *rest)
        d = self._control.decision
        value, threshold = float(d.value), float(d.threshold)
        detail = self._control.detail or (BLIND if self._control.blind else None)
        return EngineReport(True, d.reason, d.allowance, d.signal, value, threshold, detail, *rest)

    @property
    def _drained(self) -> bool:
        return self._membership.intake not in (EngineIntake.OPEN, None)

    @property
    def _obstacle(self) -> str | None:
        """Why the engine gets no batch work, whatever its headroom; None: it may get some."""
        return DRAINING if self._drained else self._health.fault

    def _down(self, outcome: EngineDown) -> None:
        """A request found the engine dead, or of no use. It gets nothing until that is over."""
        if outcome.refusal is None:
            self._health.lost()
        else:
            self._health.doubted(outcome)

    def view(self) -> metrics.View:
        """Its state now, for the metrics."""
        return metrics.view_of(
            self._control,
            self._puller,
            self._runner,
            engine=self._membership.name,
            model=self._model.served,
            mode=self._engine.mode,
            fault=self._obstacle,
            dropped_decisions=self._journal.dropped,
        )
