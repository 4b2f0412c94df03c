"""The GPU worker: one asyncio process beside one engine.

membership   a lease in the database, and control of the engine
engine       the child process of a managed engine
health       does the engine answer, does it have the model
sampler      what its telemetry says
control      decide the allowance, tell the puller
puller       claim, run, store
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol

import structlog

from app import clock
from app.crypto import secret_key
from app.db.pool import Database
from app.engines.catalogue import Model
from app.engines.client import EngineClient
from app.engines.requests import Target
from app.headroom.controller import Limits, State, decide
from app.headroom.sampler import Sampler
from app.settings import Settings
from app.storage.store import Store
from workers.gpu.caller import Caller
from workers.gpu.health import DOWN, Health
from workers.gpu.membership import Membership, Status
from workers.gpu.puller import Puller

log = structlog.get_logger()


class Engine(Protocol):
    """What a worker needs of an engine, whoever started it. `run` ends only by cancellation or with an error."""

    @property
    def mode(self) -> str:
        """`managed` or `attached`."""

    @property
    def url(self) -> str:
        """Where it answers."""

    @property
    def slots(self) -> int:
        """Requests it runs at once."""

    async def run(self, healthy: Callable[[], Awaitable[bool]]) -> None:
        """Keep it alive."""


class Worker:
    """Wires the parts together and runs them until it is told to stop."""

    def __init__(self, settings: Settings, database: Database, model: Model, engine: Engine) -> None:
        self._settings = settings
        self._engine = engine
        key = settings.engine_api_key.get_secret_value()
        self._client = EngineClient(engine.url, key, timeout_seconds=settings.request_timeout_seconds)
        target = Target(model.served, model.default_max_tokens)
        self._caller = Caller(self._client, target, secret_key(settings), settings.request_attempts, Store.of(settings))
        self._health = Health(self._client, self._caller, model)
        self._puller = Puller(settings, database, self._caller, self._down)
        self._membership = Membership(settings, database, model=model.served, url=engine.url, mode=engine.mode)
        self._caller.may_send = self._membership.holds
        self._sampler = Sampler(
            engine.url,
            lambda: len(self._caller.calling),
            period_seconds=settings.sample_seconds,
            timeout_seconds=settings.stale_seconds,
        )
        self._limits = Limits(
            cap=settings.batch_max_in_flight,
            slots=engine.slots,
            reserve=settings.sync_reserve_slots,
            kv_ceiling=settings.kv_ceiling,
            stale_seconds=settings.stale_seconds,
        )
        self._state, self._decision = decide(State(), None, self._limits, clock.monotonic())

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain and leave. Raises what makes serving impossible."""
        async with self._client:
            try:
                async with asyncio.TaskGroup() as group:
                    parts = [group.create_task(part) for part in self._parts()]
                    await stop.wait()
                    await self._puller.drain()
                    for part in parts:
                        part.cancel()
            finally:
                await self._membership.leave()
        log.info("worker.stopped")

    def _parts(self) -> list[Coroutine[None, None, None]]:
        puller = self._puller
        return [
            self._membership.run(self._status, puller.join, puller.heard, puller.lose),
            self._tend(),
            self._health.run(),
            self._sampler.run(),
            self._control(),
            puller.run(),
        ]

    async def _tend(self) -> None:
        """Run the engine while we control it; a standby worker has none."""
        while True:
            await self._membership.controls.wait()
            engine = asyncio.ensure_future(self._engine.run(self._client.healthy))
            displaced = asyncio.ensure_future(self._membership.displaced.wait())
            try:
                await asyncio.wait({engine, displaced}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                displaced.cancel()
                engine.cancel()
                await asyncio.wait({engine})
            if not engine.cancelled():
                engine.result()

    async def _control(self) -> None:
        while True:
            before = self._state
            self._state, self._decision = decide(self._state, self._sampler.latest, self._limits, clock.monotonic())
            d = self._decision
            if self._state is not before:
                said = {"signal": d.signal, "value": round(d.value, 3), "threshold": d.threshold}
                log.info(
                    "headroom.decided", allowance=d.allowance, reason=d.reason.value, was=before.reason.value, **said
                )
            serving = self._health.fault is None and self._membership.controls.is_set()
            self._puller.allow(d.allowance if serving else 0, calm=self._calm())
            await asyncio.sleep(self._settings.sample_seconds / 2)

    def _calm(self) -> bool:
        """Whether the last look found no request but ours in the engine."""
        sample = self._sampler.latest
        gauges = sample.gauges if sample else None
        return sample is not None and gauges is not None and gauges.running + gauges.waiting <= sample.own

    def _status(self) -> Status:
        if self._health.fault is not None:
            return Status(ready=False, reason=self._health.fault, allowance=0)
        return Status(ready=True, reason=self._decision.reason, allowance=self._decision.allowance)

    def _down(self, reason: str) -> None:
        """The puller met a dead engine; closed until the next good health check."""
        self._health.fault = DOWN
