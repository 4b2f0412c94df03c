"""Deletes conversations that were not used for the days of retention, and stored responses that are as old, with their keys."""

from app.db.pool import Database
from app.sessions import sql

_SLICE = 500


async def run(database: Database, days: int) -> int:
    """Delete what is older than `days`, or than the longer retention of its account; 0: nothing. Returns how many conversations
    are left because others have locked them.
    """
    if not days:
        return 0
    for statement in (sql.FORGET_OLD_TURNS, sql.FORGET_OLD_SESSIONS):
        gone = _SLICE
        while gone == _SLICE:
            async with database.relaxed() as conn:
                gone = (await conn.execute(statement, {"days": days, "limit": _SLICE})).rowcount
    async with database.durable() as conn:
        await conn.execute(sql.FORGET_OLD_KEYS)
        row = await (await conn.execute(sql.COUNT_OLD_SESSIONS, {"days": days})).fetchone()
    return row[0] if row else 0
