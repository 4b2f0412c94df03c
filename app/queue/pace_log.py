"""The log of how many tokens each pool has served. Its pace is measured from it (`app.queue.pace`)."""

from app.db.pool import Connection
from app.queue import pace
from app.queue import pace_log_sql as queries


async def note(conn: Connection) -> None:
    """Add a note for each pool that has work and a ready engine, with the pace that its notes show. Deletes old notes."""
    for pool_id, at, served in await (await conn.execute(queries.SERVED)).fetchall():
        cursor = await conn.execute(queries.NOTES, {"pool_id": pool_id, "limit": pace.NOTES})
        measured = pace.measure([*((second, tokens) for second, tokens in await cursor.fetchall()), (at, served)])
        values = {"pace": measured and measured.tokens_per_second, "spread": measured and measured.spread}
        await conn.execute(queries.INSERT_NOTE, {"pool_id": pool_id, "at": at, "served": round(served), **values})
    await conn.execute(queries.DELETE_OLD_NOTES)
