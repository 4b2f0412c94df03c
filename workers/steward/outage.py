"""An outage of the database, as the steward sees it. It can be noted only once it is over."""

from datetime import datetime

from app import clock
from app.changes import service as changes
from app.changes.kinds import ChangeKind
from app.db.pool import Database

_SUBJECT = "database"


class Outage:
    """Whether the database was away since the last lead, and from when on."""

    def __init__(self) -> None:
        self._began: datetime | None = None

    def note(self) -> None:
        """The database does not answer."""
        self._began = self._began or clock.now()

    async def over(self, database: Database) -> None:
        """Note in the timeline that it was away, if it was."""
        if self._began is None:
            return
        began, seconds = self._began, (clock.now() - self._began).total_seconds()
        async with database.transaction() as conn:
            await changes.record(conn, ChangeKind.DATABASE_LOST, _SUBJECT, {}, at=began)
            await changes.record(conn, ChangeKind.DATABASE_BACK, _SUBJECT, {"seconds": round(seconds, 1)})
        self._began = None
