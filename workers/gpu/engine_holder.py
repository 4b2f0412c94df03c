"""The worker that keeps us from the engine of our name."""

from app.db.pool import Database
from app.engines import service as engines
from app.engines.service import Holder
from app.user_errors import Failure


class EngineHolder:
    """Who controls the engine `name`, or the one at `url`, in place of us. `mode`: of our engine."""

    def __init__(self, name: str, url: str, mode: str) -> None:
        self._name, self._url, self._mode = name, url, mode
        self._before: Holder | None = None  # the first sight of the one that controls it now

    async def look(self, database: Database, model: str | None = None) -> Holder | None:
        """The worker that does. Raises Failure if it uses our name for another engine and is alive, which the second look at it
        shows: a killed one renews no lease. `model`: ours; None if it is not known yet.
        """
        async with database.relaxed() as conn:
            found = await engines.holder(conn, self._name, self._url)
        if found is None or found.name != self._name:
            return found
        # Each managed engine has its own port.
        elsewhere = found.url != self._url and "attached" in (self._mode, found.mode)
        if (elsewhere or model not in (None, found.model)) and found.outlives(self._before):
            ours = f"{model} at {self._url}" if model else self._url
            theirs = f"{found.worker} runs {found.model} at {found.url} under it"
            raise Failure(
                f"The engine name {self._name} is taken: {theirs}; this worker is for {ours}.",
                "Give this worker a free name, such as SLACKWATER_ENGINE_NAME=engine-1; `slackwater engine list` has the others.",
            )
        if self._before is None or self._before.worker_id != found.worker_id:
            self._before = found
        return found
