"""A cached list of the engines, from the database: which are ready, and when the next one is expected."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime

from app import clock
from app.db.pool import Database
from app.db.stale_if_error import StaleIfError
from app.db.transient_errors import TRANSIENT
from app.engines import service as engines
from app.engines.service import Engine
from app.gateway.routing import Fleet
from app.states import EngineIntake, EngineState

GRACE_SECONDS = 2.0  # an engine that is down for less may return at once, whatever its worker expects
BLIND_SECONDS = 2.0  # after a list this old, it is unknown why a lease has lapsed
RETURN_SECONDS = 10.0  # time for a worker to renew its lease after a database outage; its pool needs up to two


@dataclass(frozen=True, slots=True)
class EngineList:
    """The engines as read at a monotonic time. `grace_until`: by engine, until when a lapsed lease still counts as held."""

    engines: Sequence[Engine]
    at: float
    grace_until: Mapping[str, float]

    def has_worker(self, engine: Engine) -> bool:
        """Whether a worker holds the engine's lease, or may renew it at any moment because it lapsed in a database outage."""
        return engine.controlled or self.grace_until.get(engine.name, 0.0) > self.at


def updated(before: EngineList | None, engines: Sequence[Engine], now: float, *, outage: bool) -> EngineList:
    """The next list, from the engines that the database returns now. `outage`: it did not answer for a time since `before`. Pure.

    If a lease lapses while the database answers, or while nobody asks, its worker has died. If it lapses during an outage, the
    worker may live, because no worker can renew a lease then; such engines get a period of grace, anew in a second outage.
    """
    grace_until = dict(before.grace_until) if before else {}
    if before and outage and now - before.at > BLIND_SECONDS:
        grace_until |= {engine.name: now + RETURN_SECONDS for engine in before.engines if before.has_worker(engine)}
    return EngineList(engines, now, grace_until)


@dataclass(frozen=True, slots=True)
class Served:
    """A model's engines as of one list, by name: those with a worker, and those of them that answer. `fleet`: the ready ones."""

    known: Mapping[str, Engine]
    ready: Mapping[str, Engine]
    fleet: Fleet


_NONE = Served({}, {}, Fleet({}))


def by_model(listed: EngineList, before: Mapping[str, Served]) -> dict[str, Served]:
    """The engines of a list that take requests, by model. `before`: those of the last list."""
    known: dict[str, dict[str, Engine]] = {}
    for engine in listed.engines:
        if engine.intake == EngineIntake.OPEN and listed.has_worker(engine):
            known.setdefault(engine.model, {})[engine.name] = engine
    found = {}
    for model, own in known.items():
        ready = {name: engine for name, engine in own.items() if engine.state == EngineState.READY}
        slots = {name: engine.slots for name, engine in ready.items()}
        found[model] = Served(own, ready, Fleet(slots, before.get(model, _NONE).fleet))
    return found


class EngineDirectory:
    """Answers from a list of the engines, which is read again on demand when it is older than `refresh_seconds`."""

    def __init__(self, database: Database, refresh_seconds: float) -> None:
        self._database = database
        self._refresh = refresh_seconds
        self._list = StaleIfError[EngineList]()
        self._failed = False  # whether a read has failed since the last successful one
        self._server: datetime | None = None  # when the database server had started, at that read
        self._sorted: EngineList | None = None  # the list that `_by_model` is of
        self._by_model: dict[str, Served] = {}
        self._down_since: dict[str, float] = {}  # by model without a ready engine: the second when this was first seen

    async def served(self, model: str) -> Served:
        """The engines of this served model. Raises database errors."""
        listed = await self._list.get(self._read, self._refresh)
        if listed is not self._sorted:
            self._by_model, self._sorted = by_model(listed, self._by_model), listed
        found = self._by_model.get(model, _NONE)
        if found.ready:
            self._down_since.pop(model, None)
        return found

    async def has_untried(self, model: str, tried: Set[str] = frozenset()) -> bool:
        """Whether this served model has an engine with a worker, ready or starting, that was not tried."""
        return bool((await self.served(model)).known.keys() - tried)

    async def should_give_up(self, model: str, seconds: float) -> bool:
        """Whether no engine of this served model is ready or expected within `seconds`, for longer than GRACE_SECONDS."""
        if (await self.served(model)).ready:
            return False
        since, expected = self._down_since.setdefault(model, clock.monotonic()), await self.expected(model)
        soon = expected is not None and expected <= seconds
        return not soon and clock.monotonic() - since >= GRACE_SECONDS

    async def expected(self, model: str) -> float | None:
        """Seconds until an engine of this served model should answer; None if unknown."""
        known = [engine.expected_seconds for engine in (await self.served(model)).known.values()]
        return min((seconds for seconds in known if seconds is not None), default=None)

    async def ready_models(self) -> list[str]:
        """The served models that have a ready engine, sorted."""
        await self.served("")  # reads the list if it is old
        return sorted(model for model, found in self._by_model.items() if found.ready)

    async def _read(self) -> EngineList:
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
        outage = self._failed or now - began > BLIND_SECONDS or server != self._server
        self._failed, self._server = False, server
        return updated(self._list.last, found, now, outage=outage)
