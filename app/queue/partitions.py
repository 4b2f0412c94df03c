"""The daily partitions of payloads and results: created ahead of time, frozen once their day is over. `retention` drops them."""

from psycopg import sql

from app.db.pool import Connection
from app.queue import partitions_sql as queries

FROZEN_DAYS = 2  # most batches end on their own day, the others mostly on the next one


async def create(conn: Connection, days_ahead: int) -> list[str]:
    """Make sure that partitions exist for today (UTC) and the next `days_ahead` days. Returns the names of the new ones.

    Call inside a transaction. ATTACH takes a much weaker lock on the parent than CREATE … PARTITION OF.
    """
    await conn.execute(queries.LOCK)
    existing = {row[0] for row in await (await conn.execute(queries.EXISTING)).fetchall()}
    days = await (await conn.execute(queries.DAYS, {"days": days_ahead})).fetchall()
    other = await (await conn.execute(queries.OTHER_OWNER)).fetchone()
    created = []
    for day, low, high in days:
        for parent in ("item_payload", "item_result"):
            name = f"{parent}_{day}"
            if name in existing:
                continue
            names = {"name": sql.Identifier(name), "parent": sql.Identifier(parent), "low": low, "high": high}
            await conn.execute(sql.SQL(queries.CREATE).format(**names))
            for (column,) in await (await conn.execute(queries.UNSAMPLED, (parent,))).fetchall():
                await conn.execute(sql.SQL(queries.UNSAMPLE).format(name=names["name"], column=sql.Identifier(column)))
            if other is not None:
                owner = sql.Identifier(other[0])
                await conn.execute(sql.SQL(queries.HAND_OVER).format(name=names["name"], owner=owner))
            await conn.execute(sql.SQL(queries.ATTACH).format(**names))
            created.append(name)
    await _grant(conn)
    return created


async def _grant(conn: Connection) -> None:
    """Give each role the rights to every day's tables that it has to those of all days."""
    for name, role, rights in await (await conn.execute(queries.LACKING)).fetchall():
        names = {"name": sql.Identifier(name), "role": sql.Identifier(role), "rights": sql.SQL(rights)}
        await conn.execute(sql.SQL(queries.GRANT).format(**names))


async def freeze(conn: Connection) -> list[str]:
    """Vacuum, freeze and analyze the tables of the last days, each once a day: so no scan for wraparound comes over all days at
    once. Returns their names. Use a connection in autocommit mode.
    """
    names = await to_freeze(conn)
    for name in names:
        await conn.execute(sql.SQL(queries.FREEZE).format(name=sql.Identifier(name)))
    return names


async def to_freeze(conn: Connection) -> list[str]:
    """The tables of the last days that were not vacuumed today. The server skips, with a warning, one that is another role's."""
    return [row[0] for row in await (await conn.execute(queries.TO_FREEZE, {"days": FROZEN_DAYS})).fetchall()]
