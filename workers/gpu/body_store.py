"""Reads the bodies of items from the object store."""

import asyncio

from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.errors import StorageError, StoreNotShared
from app.files import shared_storage
from app.settings import Settings
from app.storage.store import Store


class BodyStore:
    """The worker's object store. A body that is missing there counts as lost only if the store is the installation's.

    The check is made here, because a worker may start before any body is in the store. `refused` is set if the worker's store is
    not the installation's: the worker cannot serve. `refusal` has the reason.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self.refused = asyncio.Event()
        self.refusal: StoreNotShared | None = None
        self._settings = settings
        self._database = database
        self._store = Store.of(settings)

    async def get(self, key: str) -> bytes:
        """A whole object. Raises StorageError; with `missing`, the object no longer exists."""
        try:
            return await self._store.get(key)
        except StorageError as error:
            if error.missing:
                await self._confirm()
            raise

    async def _confirm(self) -> None:
        """Raise a StorageError that is not `missing`, unless this store is the installation's."""
        try:
            found = await shared_storage.read(self._database)
            if found is not None:
                await shared_storage.check(found, self._settings)
        except StoreNotShared as error:
            self.refusal = error
            self.refused.set()
            raise StorageError(error.message) from error
        except TRANSIENT as error:
            raise StorageError("The database is not available to check which object store is the right one.") from error
