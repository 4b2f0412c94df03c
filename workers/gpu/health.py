"""Watches whether the engine answers and has the model, and says so when that changes."""

import asyncio

import structlog

from app import clock
from app.engines.catalogue import Model
from app.engines.client import EngineClient
from app.engines.requests import Target
from workers.gpu.caller import Caller

HEALTH_SECONDS = 0.5
PATIENCE_SECONDS = 5.0  # an engine not reached by then is mentioned

DOWN = "engine_down"
MISSING = "model_missing"

log = structlog.get_logger()


class Health:
    """`fault` is why nothing may be sent to the engine; None: it may."""

    def __init__(self, client: EngineClient, caller: Caller, model: Model) -> None:
        self.fault: str | None = DOWN
        self._client = client
        self._caller = caller
        self._model = model
        self._missing: list[str] = []  # what the engine served when it was said that the model is missing

    async def run(self) -> None:
        """Ask twice a second, until cancelled."""
        began, told = clock.monotonic(), False
        while True:
            self._change(await self._ask())
            if self.fault != DOWN:
                told = True
            elif not told and clock.monotonic() - began >= PATIENCE_SECONDS:
                log.warning("engine.not_reachable", url=self._client.url)
                told = True
            await asyncio.sleep(HEALTH_SECONDS)

    async def _ask(self) -> str | None:
        if not await self._client.healthy():
            return DOWN
        return await self._learn_name() if self.fault else None

    async def _learn_name(self) -> str | None:
        """The engine is asked for the model by its own name for it, if it has the model."""
        wanted, serves = self._model.served, await self._client.served_models()
        name = self._model.name_at(serves)
        if name is None:
            if serves != self._missing:
                log.error("engine.model_missing", url=self._client.url, wanted=wanted, serves=serves)
            self._missing = serves
            return MISSING
        self._missing = []
        if name != self._caller.target.model:
            log.info("engine.serves", name=name, catalogue=wanted)
            self._caller.target = Target(name, self._model.default_max_tokens)
        return None

    def _change(self, fault: str | None) -> None:
        if self.fault and not fault:
            log.info("engine.up", url=self._client.url)
        elif fault and not self.fault:
            log.warning("engine.not_healthy", url=self._client.url, reason=fault)
        self.fault = fault
