"""Deletes conversations that were not used for the days of retention, and stored responses that are as old, with their keys."""

from app.db.pool import Database
from app.sessions import sql

_SLICE = 500


async def run(database: Database, days: int) -> int:
    """Delete what is older than `days`, or than the longer retention of its account; 0: nothing. Returns the number of rows."""
    count = 0
    if not days:
        return count
    for statement in (sql.FORGET_OLD_TURNS, sql.FORGET_OLD_SESSIONS):
        gone = _SLICE
        while gone == _SLICE:
            async with database.relaxed() as conn:
                gone = (await conn.execute(statement, {"days": days, "limit": _SLICE})).rowcount
            count += gone
    async with database.durable() as conn:
        await conn.execute(sql.FORGET_OLD_KEYS)
    return count
