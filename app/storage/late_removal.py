"""Removes objects whose rows have ended on time: at once, or `SLACKWATER_OBJECT_GRACE_DAYS` later.

A database that is restored to an earlier moment has such rows again, and needs their objects. What somebody deletes is not kept.
"""

from collections.abc import Sequence

from app.db.pool import Connection, Database
from app.storage import late_removal_sql as queries
from app.storage.store import Store

_PAGE = 500


async def remove(conn: Connection, store: Store, paths: Sequence[str], grace_days: int) -> int:
    """Remove the objects with these keys and, for a path with `/` at its end, those below it; with `grace_days` so much later.

    Returns how many paths are new. It is safe to repeat. Call it in autocommit, before the rows are deleted that need it to be
    repeated. Raises StorageError.
    """
    if grace_days:
        return await plan(conn, paths, grace_days)
    await _remove(store, paths)
    return len(paths)


async def plan(conn: Connection, paths: Sequence[str], days: int = 0) -> int:
    """Let a duty remove them, so many days from now on. It may be a part of a transaction. Returns how many are new."""
    return (await conn.execute(queries.PLAN, {"paths": list(paths), "days": days})).rowcount


async def sweep(database: Database, store: Store) -> None:
    """Remove what is due. It is safe to interrupt and repeat. Raises StorageError."""
    while True:
        async with database.relaxed() as conn:
            rows = await (await conn.execute(queries.DUE, {"limit": _PAGE})).fetchall()
        if not rows:
            return
        paths = [str(path) for (path,) in rows]
        await _remove(store, paths)
        async with database.durable() as conn:
            await conn.execute(queries.DONE, {"paths": paths})


async def _remove(store: Store, paths: Sequence[str]) -> None:
    await store.delete([path for path in paths if not path.endswith("/")])
    for path in paths:
        if path.endswith("/"):
            await store.delete_prefix(path)
