"""The large bodies of one submit. They are put into the object store before the transaction that refers to them."""

from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from app.errors import StorageError
from app.storage.store import Store


class Offload:
    """A context manager that removes the objects at its end, unless `seal` was called. Retention removes any that remain."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keys: list[str] = []
        self._sealed = False

    async def put(self, bodies: Sequence[tuple[str, bytes]]) -> None:
        """Store these durably. Raises StorageError, StorageFull."""
        self._keys += [key for key, _ in bodies]
        if bodies:
            await self._store.put_all(bodies)

    def seal(self) -> None:
        """Keep the objects: the commit follows, and the batch may exist even if the commit reports an error."""
        self._sealed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._keys and not self._sealed:
            with suppress(StorageError):
                await self._store.delete(self._keys)
