"""The steward's work on pipelines: it hands results on beside the rounds, and ends pipelines after each."""

from collections.abc import Sequence
from typing import NoReturn

import structlog

from app.admission.control import AdmissionControl
from app.clock import monotonic
from app.db.pool import Database
from app.pipelines import ids, lifecycle, verbs
from app.pipelines.feeding import WAITS, Elsewhere, Feeder
from app.queue import dependencies, stages, wakes
from app.queue.settling import Settled
from app.settings import Settings
from workers.steward.rest import Pace

LOOK_SECONDS = 0.025  # while pipelines are open
IDLE_SECONDS = 0.5
RETRY_SECONDS = 1.0
SWEEP_SECONDS = 5.0

log = structlog.get_logger("steward")


class PipelineKeeper:
    """The pipelines of one database."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        control: AdmissionControl,
        elsewhere: Elsewhere | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._database = database
        self._pace = pace or Pace()
        self.feeder = Feeder(database, settings, control, elsewhere)
        self._sweep_at = 0.0
        self._ended: list[int] = []
        self._progress = False

    async def keep(self) -> NoReturn:
        """Hand results on until cancelled."""
        while True:
            try:
                busy, pause = await self.feeder.step(), LOOK_SECONDS
                if not busy and not await self.feeder.any_open():
                    pause = IDLE_SECONDS
            except WAITS as error:
                log.warning("handoff.waits", error=str(error.__cause__ or error).strip())
                busy, pause = False, RETRY_SECONDS
            if busy:
                wakes.notify({})
            else:
                await self._pace.pause(pause)

    def note(self, settled: Sequence[Settled], *, progress: bool) -> None:
        """Look after the pipelines of these batches, which have ended, in the next `run`. `progress`: results were counted."""
        self._ended += [batch.batch_id for batch in settled]
        self._progress |= progress

    async def run(self) -> bool:
        """Once a round, and not in the transaction that ends batches: give up pipelines whose time is over, begin stages and
        batches that waited for others, end pipelines. Every few seconds it looks after all of them. Returns whether
        anything changed.
        """
        if everything := monotonic() >= self._sweep_at:
            async with self._database.transaction() as conn:
                expired = await verbs.expire(conn)
            self._sweep_at = monotonic() + SWEEP_SECONDS
        if self._progress or everything:
            await self._pause()
        if not self._ended and not everything:
            return False
        async with self._database.transaction() as conn:
            awake = await dependencies.start(conn)
        async with self._database.relaxed() as conn:
            found = await (verbs.unfinished(conn) if everything else verbs.of_batches(conn, self._ended))
        ended = []
        if found:
            async with self._database.transaction() as conn:
                ended = await verbs.end(conn, found)
                awake += await stages.awake(conn, found)
                await lifecycle.tell_ends(conn, ended)
        self._ended.clear()
        for each in ended:
            log.info(f"pipeline.{each.state}", pipeline=ids.format_id(each.request_id), run=each.run)
        return bool(ended or awake or (everything and expired))

    async def _pause(self) -> None:
        """Pause the pipelines that have used their budget, or in which something is wrong."""
        self._progress = False
        async with self._database.transaction() as conn:
            paused = await lifecycle.pause_exceeded(conn)
        for request_id, why in paused:
            log.warning("pipeline.paused", pipeline=ids.format_id(request_id), why=str(why))
