"""The large bodies of one submit on their way into the object store, ahead of the transaction that names them."""

from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from app.errors import StorageError
from app.storage.store import Store


class Offload:
    """A context manager: leaving it unsealed removes what was put. What it cannot remove goes with the day (retention)."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keys: list[str] = []
        self._sealed = False

    async def put(self, bodies: Sequence[tuple[str, bytes]]) -> None:
        """Keep these durably. Raises StorageError, StorageFull."""
        self._keys += [key for key, _ in bodies]
        if bodies:
            await self._store.put_all(bodies)

    def seal(self) -> None:
        """The batch is about to be committed: from here on it may exist, whatever we hear of it."""
        self._sealed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._keys and not self._sealed:
            with suppress(StorageError):
                await self._store.delete(self._keys)
