"""Checks that the API shares its object store with the other parts, again and again until the database answers."""

import asyncio

import psycopg
import structlog
from psycopg_pool import PoolTimeout

from app.db.pool import Database
from app.errors import StorageError, StoreNotShared
from app.files import shared_storage
from app.settings import Settings

PAUSE_SECONDS = 1.0
_log = structlog.get_logger("api")


class StoreCheck:
    """Until it has passed, an API that started without its database refuses every request with an API key."""

    def __init__(self, database: Database, settings: Settings, *, passed: bool) -> None:
        self._database, self._settings, self._passed = database, settings, passed

    def require(self) -> None:
        """Raises StorageError until the check has passed."""
        if not self._passed:
            raise StorageError(
                "This server could not check its object store since it started. Try again in a few seconds. If the error "
                "remains, the API's log tells the operator the cause."
            )

    async def keep(self) -> None:
        """Repeat the check until it has passed, then return."""
        while not self._passed:
            try:
                await shared_storage.require(self._database, self._settings, "api")
                self._passed = True
            except StoreNotShared as error:
                _log.error("objects.not_shared", error=error.message, remedy=error.remedy)
                await asyncio.sleep(PAUSE_SECONDS)
            except (psycopg.Error, PoolTimeout, OSError):
                await asyncio.sleep(PAUSE_SECONDS)
