"""What the duties work with."""

from dataclasses import dataclass

from app.db.embedded import direct_url
from app.db.pool import Database
from app.files import shared_storage
from app.settings import Settings
from app.storage.store import Store
from workers.maintenance.audit import AuditKeeper

PART = "maintenance"


class HeldUp(Exception):
    """A duty has done what it could, and others keep it from the rest."""


@dataclass(frozen=True, slots=True)
class Work:
    """The installation that a worker looks after."""

    database: Database
    settings: Settings
    audit: AuditKeeper

    @property
    def direct_url(self) -> str:
        """The URL of the database itself."""
        return direct_url(self.settings)

    async def store(self) -> Store:
        """The object store, once it is known to be that of the other parts. Raises StoreNotShared."""
        await shared_storage.require(self.database, self.settings, PART)
        return Store.of(self.settings)
