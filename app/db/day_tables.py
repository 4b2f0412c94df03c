"""The tables of one day. The high bits of a batch's id are the day of its submit (UTC), and its items and results are in that
day's partitions of `item_payload` and `item_result`.

A statement on one batch names that day's tables. It then plans and locks two tables, however many days are kept. Only
the steward and `slackwater restored` read or write all days at once.
"""

import re
from collections.abc import Collection, Mapping
from datetime import date, timedelta
from functools import lru_cache
from itertools import groupby

import psycopg
from psycopg import AsyncCursor
from psycopg.rows import TupleRow

from app.db.pool import Connection
from app.errors import NotFound

DAY_BITS = 36  # below the day in a batch's id
_FIRST_DAY = date(2024, 1, 1)
_TABLE = re.compile(r"\bitem_(?:payload|result)\b")


def on_day(statement: str, batch_id: int) -> str:
    """The statement on the tables of this batch's day. There is one text for each statement and day."""
    return _on_day(statement, batch_id >> DAY_BITS)


@lru_cache(maxsize=4096)
def _on_day(statement: str, day: int) -> str:
    suffix = f"_{_FIRST_DAY + timedelta(days=day):%Y%m%d}"
    return _TABLE.sub(lambda table: table[0] + suffix, statement)


def by_day(batch_ids: Collection[int]) -> list[list[int]]:
    """The batches of each day, in order."""
    return [list(ids) for _, ids in groupby(sorted(batch_ids), lambda batch_id: batch_id >> DAY_BITS)]


async def execute(
    conn: Connection, statement: str, batch_id: int, parameters: Mapping[str, object], *, binary: bool = False
) -> AsyncCursor[TupleRow]:
    """Execute the statement on the tables of this batch's day. Raises NotFound: retention has dropped that day."""
    try:
        return await conn.execute(on_day(statement, batch_id), parameters, binary=binary)
    except psycopg.errors.UndefinedTable as error:
        raise NotFound("The batch does not exist any more: its day was dropped by retention.") from error
