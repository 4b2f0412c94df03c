"""The object store as a worker reads the bodies of items there."""

import asyncio

from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.errors import StorageError, StoreNotShared
from app.files import shared_storage
from app.settings import Settings
from app.storage.store import Store


class BodyStore:
    """A body that is missing is believed to be gone only where the store is the installation's.

    A worker may have started before bodies lay in the store, when it needed none. `refused`: its store is not the one that it
    needs now, as `refusal` says; it cannot serve.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self.refused = asyncio.Event()
        self.refusal: StoreNotShared | None = None
        self._settings = settings
        self._database = database
        self._store = Store.of(settings)

    async def get(self, key: str) -> bytes:
        """A whole object. Raises StorageError; `missing`: it is gone for good."""
        try:
            return await self._store.get(key)
        except StorageError as error:
            if error.missing:
                await self._confirm()
            raise

    async def _confirm(self) -> None:
        """Raise a StorageError that is not `missing` where this store, or nobody at the moment, can tell what is gone."""
        try:
            found = await shared_storage.read(self._database)
            if found is not None:
                await shared_storage.check(found, self._settings)
        except StoreNotShared as error:
            self.refusal = error
            self.refused.set()
            raise StorageError(error.message) from error
        except TRANSIENT as error:
            raise StorageError("The database cannot say right now which object store is the right one.") from error
