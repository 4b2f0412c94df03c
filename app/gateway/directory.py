"""Which engines are ready, as the database had it a moment ago."""

from collections.abc import Sequence, Set

from app.db.pool import Database
from app.db.remembered import Remembered
from app.engines import service as engines
from app.engines.service import Engine
from app.states import EngineState


class Directory:
    """The list of engines, read again when it is older than `refresh_seconds` and somebody asks."""

    def __init__(self, database: Database, refresh_seconds: float) -> None:
        self._database = database
        self._refresh = refresh_seconds
        self._engines = Remembered[Sequence[Engine]]()

    async def ready(self, model: str) -> list[Engine]:
        """The engines of this served model that answer and have a live controller. Raises as the database does."""
        return [engine for engine in await self._known(model) if engine.state == EngineState.READY]

    async def expects(self, model: str, tried: Set[str] = frozenset()) -> bool:
        """Whether somebody looks after an engine of this served model that was not tried, be it ready or on its way."""
        return any(engine.name not in tried for engine in await self._known(model))

    async def _known(self, model: str) -> list[Engine]:
        known = await self._engines.get(self._read, self._refresh)
        return [engine for engine in known if engine.model == model and engine.controlled]

    async def _read(self) -> Sequence[Engine]:
        async with self._database.relaxed() as conn:
            return await engines.list_engines(conn)
