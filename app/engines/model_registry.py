"""The models of this installation as one process knows them: the catalogue's, and those that attached engines brought."""

import asyncio
from typing import NoReturn

import structlog

from app.db.pool import Connection, Database
from app.db.transient_errors import TRANSIENT
from app.engines import service
from app.engines.catalogue import Catalogue, adopted

REFRESH_SECONDS = 1.0
PATIENCE_SECONDS = 2.0

log = structlog.get_logger("models")


class ModelRegistry:
    """`current` is looked up by every request; `keep` renews it, a moment behind the database."""

    def __init__(self, database: Database, file: Catalogue) -> None:
        self.current = file
        self._file = file
        self._database = database

    async def keep(self) -> NoReturn:
        """Renew `current` until cancelled. A database that is away changes nothing."""
        while True:
            await self.renew()
            await asyncio.sleep(REFRESH_SECONDS)

    async def renew(self) -> None:
        """Read once what was adopted."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._database.relaxed() as conn:
                self.current = await with_adopted(conn, self._file)
        except (TimeoutError, *TRANSIENT):
            pass
        except Exception:
            log.exception("models.not_read")


async def with_adopted(conn: Connection, file: Catalogue) -> Catalogue:
    """The catalogue and what was adopted beside it. Its own names win."""
    return file.extended([adopted(*row) for row in await service.adopted_models(conn)])
