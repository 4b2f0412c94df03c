"""Claims about objects whose rows have gone: with days of grace they stay, and go when these are over."""

import pytest

from app.db.pool import Database
from app.settings import Settings
from app.storage import late_removal
from app.storage.store import Store

KEYS = ("payload/20260101/7/0", "payload/20260101/8/0", "file/1/a", "file/1/b")
PATHS = ("payload/20260101/", "file/1/a")


@pytest.fixture
async def store(settings: Settings) -> Store:
    """A store with objects."""
    store = Store.of(settings)
    for key in KEYS:
        await store.put(key, b"x")
    return store


async def keys(store: Store) -> set[str]:
    """The keys of all objects."""
    return {key async for key, _ in store.list("")}


async def test_without_days_of_grace_objects_go_at_once(database: Database, store: Store) -> None:
    async with database.durable() as conn:
        assert await late_removal.remove(conn, store, PATHS, 0) == 2
    assert await keys(store) == {"file/1/b"}


async def test_objects_stay_for_the_days_of_grace_and_go_then(database: Database, store: Store) -> None:
    async with database.durable() as conn:
        assert await late_removal.remove(conn, store, PATHS, 7) == 2
        assert await late_removal.remove(conn, store, PATHS, 9) == 0  # planned already: it goes when it was to go
        await late_removal.sweep(database, store)
        assert await keys(store) == set(KEYS)
        await conn.execute("update object_removal set due_at = due_at - interval '7 days 1 second'")
    await late_removal.sweep(database, store)
    assert await keys(store) == {"file/1/b"}
    async with database.durable() as conn:
        assert (await conn.execute("select from object_removal")).rowcount == 0
