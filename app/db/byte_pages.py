"""Pages of rows with bodies: however much a body weighs, a page holds no more than PAGE_BYTES of them, or one body.

The one place for that rule. A reader that reads ahead holds two pages.
"""

from typing import Any

from psycopg import AsyncCursor
from psycopg.rows import TupleRow

PAGE_BYTES = 4 * 2**20


def bounded(rows: str, size: str, *, order: str = "seq", descending: bool = False) -> str:
    """The first of these rows that fit into a page, one at least. To be read by `read`.

    `rows`: a statement with an order and a limit. `size`: the bytes of a row, an expression on its columns that reads no body.
    """
    way = "desc" if descending else "asc"
    return f"""
select * from (
  select f.*, count(*) over () as found, row_number() over w as place, (sum({size}) over w)::int8 as bytes from ({rows}) f
  window w as (order by {order} {way})) f
where place = 1 or bytes <= {PAGE_BYTES} order by {order} {way}"""  # noqa: S608


async def read(cursor: AsyncCursor[TupleRow], limit: int) -> tuple[list[tuple[Any, ...]], bool]:
    """The rows of a `bounded` statement with this limit, and whether there may be more."""
    rows = await cursor.fetchall()
    more = bool(rows) and (rows[0][-3] > len(rows) or rows[0][-3] == limit)
    return [row[:-3] for row in rows], more
