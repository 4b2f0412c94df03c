"""The steward's part in conversations: background turns end and begin, and summaries are made.

It runs beside the rounds, because it reads answers, which may lie in the object store.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from uuid import UUID

from app.admission.control import AdmissionControl
from app.clock import monotonic
from app.crypto import secret_key
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.policy.in_force import REFRESH_SECONDS
from app.queue.settling import Settled
from app.queue.types import Kind
from app.sessions import checkpoints, queued
from app.sessions.queued import Steward
from app.settings import Settings
from workers.steward.rest import Pace

LOOK_SECONDS = 0.25  # a turn waits at most this long for its start after another process has ended the one before
SWEEP_SECONDS = 5.0  # between two looks for turns whose batches ended elsewhere


class Turns:
    """Ends and starts the background turns of one database."""

    def __init__(
        self, database: Database, settings: Settings, control: AdmissionControl, pace: Pace | None = None
    ) -> None:
        self._pace = pace or Pace()
        self._control, self._models, self._policy = control, control.models, control.policy
        self._database, self._settings, self._secret = database, settings, secret_key(settings)
        self._ended: set[UUID] = set()
        self._stuck: set[UUID] = set()
        self._wake = asyncio.Event()
        self._swept = self._followed = float("-inf")

    def ended(self, batches: Iterable[Settled]) -> None:
        """These batches have ended: the turns among them are looked at soon."""
        found = {batch.request_id for batch in batches if batch.kind == Kind.RESPONSE}
        if found:
            self._ended |= found
            self._wake.set()

    async def keep(self) -> None:
        """Look again and again until cancelled."""
        while True:
            with suppress(*TRANSIENT):
                await self.look()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LOOK_SECONDS)
            self._wake.clear()
            await self._pace.pause(0)

    async def look(self) -> None:
        """End what has ended, start what may start, and look after summaries."""
        if monotonic() >= self._followed + REFRESH_SECONDS:
            self._followed = monotonic()
            await self._control.renew()
        models, control = self._models.current, self._control
        steward = Steward(self._database, self._settings, self._secret, models, control, self._stuck)
        if ended := list(self._ended):
            await queued.end(steward, ended)
            self._ended.difference_update(ended)
        if monotonic() >= self._swept + SWEEP_SECONDS:
            await self.sweep(steward)
            self._swept = monotonic()
        await queued.start(steward)

    async def sweep(self, steward: Steward) -> None:
        """What need not happen at once: turns whose batches ended elsewhere, and checkpoints."""
        self._stuck.clear()
        await queued.end(steward)
        await self._models.renew()
        await checkpoints.end(steward)
        if self._policy.known:
            await checkpoints.begin(steward)
