"""The models that one process knows: those of the catalogue, and those that attached engines brought."""

import asyncio
from typing import NoReturn

import structlog

from app import clock
from app.db.pool import Connection, Database
from app.db.transient_errors import TRANSIENT
from app.engines import service
from app.engines.catalogue import Catalogue, adopted
from app.engines.rate_card import Work

REFRESH_SECONDS = 1.0
PATIENCE_SECONDS = 2.0

log = structlog.get_logger("models")


class ModelRegistry:
    """Every request reads `current`. `keep` refreshes it from the database every REFRESH_SECONDS.

    `offered`: those of them that engines serve or have served, for a process that `offers` models and may read engines. `work`:
    whose prices `current` has, those of the moment.
    """

    def __init__(self, database: Database, file: Catalogue, *, offers: bool = False, work: Work = Work.SYNC) -> None:
        self._known = file
        self._work = work
        self._offered = file.served_by(frozenset())
        self._file = file
        self._offers = offers
        self._database = database
        self._read_at = float("-inf")

    @property
    def current(self) -> Catalogue:
        """The models at this moment, with their prices."""
        return self.priced(self._work)

    def priced(self, work: Work) -> Catalogue:
        """The models at this moment, with their prices for this kind of work."""
        return self._known.priced(work, clock.now())

    @property
    def offered(self) -> Catalogue:
        """Those that engines serve or have served."""
        return self._offered.priced(self._work, clock.now())

    async def keep(self) -> NoReturn:
        """Refresh the models until cancelled. They stay unchanged while the database is unavailable."""
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
                self._known = await with_adopted(conn, self._file)
                if self._offers:
                    self._offered = self._known.served_by(await service.served_models(conn))
        except (TimeoutError, *TRANSIENT):
            pass
        except Exception:
            log.exception("models.not_read")


async def with_adopted(conn: Connection, file: Catalogue) -> Catalogue:
    """The catalogue extended by the adopted models. The catalogue's names take precedence."""
    return file.extended([adopted(*row) for row in await service.adopted_models(conn)])
