"""The models that one process knows: those of the catalogue, and those that attached engines brought."""

import asyncio
from typing import NoReturn

import structlog

from app import clock
from app.db.pool import Connection, Database
from app.db.transient_errors import TRANSIENT
from app.engines import service
from app.engines.catalogue import Catalogue, adopted

REFRESH_SECONDS = 1.0
PATIENCE_SECONDS = 2.0

log = structlog.get_logger("models")


class ModelRegistry:
    """Every request reads `current`. `keep` refreshes it from the database every REFRESH_SECONDS.

    `offered`: those of them that engines serve or have served, for a process that `offers` models and may read engines.
    """

    def __init__(self, database: Database, file: Catalogue, *, offers: bool = False) -> None:
        self.current = file
        self.offered = file.served_by(frozenset())
        self._file = file
        self._offers = offers
        self._database = database
        self._read_at = float("-inf")

    async def keep(self) -> NoReturn:
        """Refresh `current` until cancelled. It stays unchanged while the database is unavailable."""
        while True:
            await self.renew()
            await asyncio.sleep(REFRESH_SECONDS)

    async def fresh(self) -> None:
        """As `renew`, unless that was done within REFRESH_SECONDS: for a process that does not `keep` them."""
        if clock.monotonic() - self._read_at >= REFRESH_SECONDS:
            await self.renew()

    async def renew(self) -> None:
        """Read the adopted models, and which are offered, once."""
        self._read_at = clock.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._database.relaxed() as conn:
                self.current = await with_adopted(conn, self._file)
                if self._offers:
                    self.offered = self.current.served_by(await service.served_models(conn))
        except (TimeoutError, *TRANSIENT):
            pass
        except Exception:
            log.exception("models.not_read")


async def with_adopted(conn: Connection, file: Catalogue) -> Catalogue:
    """The catalogue extended by the adopted models. The catalogue's names take precedence."""
    return file.extended([adopted(*row) for row in await service.adopted_models(conn)])
