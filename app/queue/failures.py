"""Why items of a batch failed."""

from dataclasses import dataclass

import orjson

from app.db.pool import Connection
from app.errors import BadInput
from app.queue import failure_sql as queries


@dataclass(frozen=True, slots=True)
class Failures:
    """Items that failed in the same words: the error's code and message, and how many."""

    code: int
    message: str
    count: int


async def grouped(conn: Connection, batch_id: int, run: int, *, most: int = 10) -> list[Failures]:
    """Why items of this run failed, the most frequent reason first, counted among the first 10,000 that did."""
    values = {"batch_id": batch_id, "run": run, "limit": most}
    rows = await (await conn.execute(queries.GROUPED, values)).fetchall()
    said = [(orjson.loads(body), count) for body, count in rows]
    return [Failures(error["code"], error["message"], count) for error, count in said]


async def all_refused(conn: Connection, batch_id: int, run: int) -> bool:
    """Whether every item that failed in this run did so because it is not fit to be run: its caller's error, nobody else's."""
    values = {"batch_id": batch_id, "run": run, "code": str(BadInput.code)}
    row = await (await conn.execute(queries.REFUSED_ALL, values)).fetchone()
    return row is not None and bool(row[0])
