"""Create the daily partitions of payloads and results ahead of time. `retention` drops the old ones."""

from psycopg import sql

from app.db.pool import Connection
from app.queue import partitions_sql as queries


async def create(conn: Connection, days_ahead: int) -> list[str]:
    """Make sure that partitions exist for today (UTC) and the next `days_ahead` days. Returns the names of the new ones.

    Call inside a transaction. ATTACH takes a much weaker lock on the parent than CREATE … PARTITION OF.
    """
    await conn.execute(queries.LOCK)
    existing = {row[0] for row in await (await conn.execute(queries.EXISTING)).fetchall()}
    days = await (await conn.execute(queries.DAYS, {"days": days_ahead})).fetchall()
    created = []
    for day, low, high in days:
        for parent in ("item_payload", "item_result"):
            name = f"{parent}_{day}"
            if name in existing:
                continue
            names = {"name": sql.Identifier(name), "parent": sql.Identifier(parent), "low": low, "high": high}
            await conn.execute(sql.SQL(queries.CREATE).format(**names))
            await conn.execute(sql.SQL(queries.ATTACH).format(**names))
            created.append(name)
    return created
