"""Samples of requests without their content, from which `policy test` shows what a policy would have done.

A process stores at most SAMPLES_AN_HOUR. A sample stands for itself and for the like requests since the
sample before it that were not stored.
"""

import asyncio
from collections import Counter
from typing import NoReturn

import structlog

from app import clock
from app.admission.admission import RequestFacts
from app.causes import cause
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.policy import samples
from app.policy.samples import Sample

SAMPLES_AN_HOUR = 1000
_BURST = 100  # so many may come at once
_STORE_SECONDS = 1.0
_MOST_KINDS = 10_000  # of requests that wait for a sample; beyond it they are not counted
_Kind = tuple[int, str, str, str, bool, str, str, str]
_log = structlog.get_logger("policy")


class RequestSamples:
    """The samples of one process. Run `keep` beside it."""

    def __init__(self, database: Database, an_hour: int = SAMPLES_AN_HOUR) -> None:
        self._database = database
        self._rate = an_hour / 3600
        self._left, self._at = float(min(_BURST, an_hour)), clock.monotonic()
        self._skipped: Counter[_Kind] = Counter()
        self._taken: list[Sample] = []

    def add(self, tenant_id: int, facts: RequestFacts) -> None:
        """Note a request: as a sample, or as one more that the next sample of its kind stands for."""
        who = facts.who
        if who is None:
            return
        kind = (tenant_id, who.key, who.workflow, who.task, who.critical, who.kind, facts.model, facts.endpoint)
        now = clock.monotonic()
        self._left, self._at = min(_BURST, self._left + (now - self._at) * self._rate), now
        if self._left < 1:
            if len(self._skipped) < _MOST_KINDS:
                self._skipped[kind] += facts.items
            return
        self._left -= 1
        stands_for = facts.items + self._skipped.pop(kind, 0)
        of_one = facts.est_tokens // facts.items, facts.answer_tokens // facts.items
        self._taken.append(Sample(*kind, who.deadline, stands_for, *of_one))

    async def keep(self) -> NoReturn:
        """Store the samples each second, until cancelled. Those that the database does not take are lost."""
        while True:
            await asyncio.sleep(_STORE_SECONDS)
            await self.store()

    async def store(self) -> None:
        """Store what was taken."""
        taken, self._taken = self._taken, []
        if not taken:
            return
        try:
            async with self._database.relaxed() as conn:
                await samples.store(conn, taken)
        except TRANSIENT as error:
            _log.warning("samples.not_stored", samples=len(taken), error=cause(error))
        except Exception:  # such as an account that is deleted at this moment; the next samples are stored
            _log.exception("samples.not_stored", samples=len(taken))
