"""Which engines are ready, as the database had it a moment ago, and when one should be."""

from collections.abc import Sequence, Set

from app import clock
from app.db.pool import Database
from app.db.remembered import Remembered
from app.engines import service as engines
from app.engines.service import Engine
from app.states import EngineState, Intake

GRACE_SECONDS = 2.0  # an engine that is away for less may be back at once, whatever is expected of it


class Directory:
    """The list of engines, read again when it is older than `refresh_seconds` and somebody asks."""

    def __init__(self, database: Database, refresh_seconds: float) -> None:
        self._database = database
        self._refresh = refresh_seconds
        self._engines = Remembered[Sequence[Engine]]()
        self._away: dict[str, float] = {}  # models without a ready engine: since when we know

    async def ready(self, model: str) -> list[Engine]:
        """The engines of this served model that answer and have a live controller. Raises as the database does."""
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
        known = await self._engines.get(self._read, self._refresh)
        return [e for e in known if e.model == model and e.controlled and e.intake == Intake.OPEN]

    async def _read(self) -> Sequence[Engine]:
        async with self._database.relaxed() as conn:
            return await engines.list_engines(conn)
