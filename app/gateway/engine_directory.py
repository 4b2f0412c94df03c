"""Which engines are ready, as the database had it a moment ago, and when one should be."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime

from app import clock
from app.db.pool import Database
from app.db.stale_if_error import StaleIfError
from app.db.transient_errors import TRANSIENT
from app.engines import service as engines
from app.engines.service import Engine
from app.states import EngineIntake, EngineState

GRACE_SECONDS = 2.0  # an engine that is away for less may be back at once, whatever is expected of it
BLIND_SECONDS = 2.0  # a list that is older tells nothing of the leases that have lapsed since, if it was away meanwhile
RETURN_SECONDS = 10.0  # for a worker to take its lease again after the database was away; the pools take up to two


@dataclass(frozen=True, slots=True)
class ReadyEngines:
    """The engines as the database told them at a moment; `pardoned`: which count as looked after until when all the same."""

    engines: Sequence[Engine]
    at: float
    pardoned: Mapping[str, float]

    def looked_after(self, engine: Engine) -> bool:
        """Whether a worker's lease on it holds, or lapsed while nobody could renew it and may be taken again any moment."""
        return engine.controlled or self.pardoned.get(engine.name, 0.0) > self.at


def seen(before: ReadyEngines | None, engines: Sequence[Engine], now: float, *, away: bool) -> ReadyEngines:
    """What to make of what the database says now; `away`: it did not answer for a time since `before`. Pure.

    A lease that lapsed under our eyes, or while nobody asked, is a worker that died. One that lapsed while the database was away
    may be any worker's, since none can renew it then. Who was pardoned and had not come back is pardoned anew in a second outage.
    """
    pardoned = dict(before.pardoned) if before else {}
    if before and away and now - before.at > BLIND_SECONDS:
        pardoned |= {engine.name: now + RETURN_SECONDS for engine in before.engines if before.looked_after(engine)}
    return ReadyEngines(engines, now, pardoned)


class EngineDirectory:
    """The list of engines, read again when it is older than `refresh_seconds` and somebody asks."""

    def __init__(self, database: Database, refresh_seconds: float) -> None:
        self._database = database
        self._refresh = refresh_seconds
        self._sight = StaleIfError[ReadyEngines]()
        self._failed = False  # whether a look has failed since the last that did not
        self._server: datetime | None = None  # since when the server ran at that look
        self._away: dict[str, float] = {}  # models without a ready engine: since when we know

    async def ready(self, model: str) -> list[Engine]:
        """The engines of this served model that answer and are looked after. Raises as the database does."""
        found = [engine for engine in await self._known(model) if engine.state == EngineState.READY]
        if found:
            self._away.pop(model, None)
        return found

    async def expects(self, model: str, tried: Set[str] = frozenset()) -> bool:
        """Whether somebody looks after an engine of this served model that was not tried, be it ready or on its way."""
        return any(engine.name not in tried for engine in await self._known(model))

    async def hopeless(self, model: str, seconds: float) -> bool:
        """Whether no engine of this served model is ready, nor expected within that time, and this is no mere blip."""
        if await self.ready(model):
            return False
        since, expected = self._away.setdefault(model, clock.monotonic()), await self.expected(model)
        soon = expected is not None and expected <= seconds
        return not soon and clock.monotonic() - since >= GRACE_SECONDS

    async def expected(self, model: str) -> float | None:
        """Seconds until an engine of this served model should answer; None: nobody can tell."""
        known = [engine.expected_seconds for engine in await self._known(model)]
        return min((seconds for seconds in known if seconds is not None), default=None)

    async def _known(self, model: str) -> list[Engine]:
        sight = await self._sight.get(self._look, self._refresh)
        return [
            e for e in sight.engines if e.model == model and sight.looked_after(e) and e.intake == EngineIntake.OPEN
        ]

    async def _look(self) -> ReadyEngines:
        began = clock.monotonic()
        try:
            async with self._database.relaxed() as conn:
                found = await engines.list_engines(conn)
                started = await conn.execute("select pg_postmaster_start_time()")
                server = (await started.fetchone() or [None])[0]
        except TRANSIENT:
            self._failed = True
            raise
        now = clock.monotonic()
        away = self._failed or now - began > BLIND_SECONDS or server != self._server
        self._failed, self._server = False, server
        return seen(self._sight.last, found, now, away=away)
