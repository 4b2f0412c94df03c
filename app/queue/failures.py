"""Why items of a batch failed."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import orjson

from app.db import day_tables
from app.db.pool import Connection
from app.engines.outcome import meaning
from app.errors import BadInput
from app.queue import errors_sql
from app.queue import failure_sql as queries
from app.queue.bodies import StoredBodies
from app.sealing.keyring import Keyring
from app.sealing.sealed_form import is_sealed


@dataclass(frozen=True, slots=True)
class Failures:
    """An error's code and message, and the number of items that failed with it."""

    code: int
    message: str
    count: int


def by_code(found: Sequence[Failures]) -> list[Failures]:
    """The same without messages that may quote a prompt: the count of each code, the most frequent first."""
    counts = Counter[int]()
    for each in found:
        counts[each.code] += each.count
    return [Failures(code, meaning(code), count) for code, count in counts.most_common()]


async def grouped(conn: Connection, keyring: Keyring, batch_id: int, run: int, *, most: int = 10) -> list[Failures]:
    """The errors of this run, the most frequent first, counted over the first 10,000 failed items. Raises KeysUnavailable."""
    values = {"batch_id": batch_id, "run": run, "limit": most}
    rows = await (await day_tables.execute(conn, queries.GROUPED, batch_id, values)).fetchall()
    if any(is_sealed(body) for body, _ in rows):
        rows = await _opened(conn, keyring, batch_id, run, most)
    errors = [(orjson.loads(body), count) for body, count in rows]
    return [Failures(error["code"], error["message"], count) for error, count in errors]


async def _opened(conn: Connection, keyring: Keyring, batch_id: int, run: int, most: int) -> list[tuple[bytes, int]]:
    """What GROUPED reads, of a sealed batch."""
    bodies, counts = StoredBodies(conn, keyring, batch_id), Counter[bytes]()
    values = {"batch_id": batch_id, "run": run}
    rows = await (await day_tables.execute(conn, queries.ERRORS, batch_id, values)).fetchall()
    for seq, of_run, body in rows:
        counts[await bodies.result(seq, of_run, body, ok=False)] += 1
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:most]


@dataclass(frozen=True, slots=True)
class FailureClass:
    """How many items failed with this class of error, as folded. `seq`: the first of them, and its message; None: not known."""

    error: str
    count: int
    seq: int | None
    code: int | None
    message: str | None

    def without_words(self) -> "FailureClass":
        """The same without a message that may quote a prompt."""
        return self if self.code is None else replace(self, message=meaning(self.code))


async def by_class(conn: Connection, keyring: Keyring, batch_id: int, run: int) -> list[FailureClass]:
    """The failures of this run by class, the most frequent first. A batch that ended before classes were kept has none.

    Raises KeysUnavailable.
    """
    bodies = StoredBodies(conn, keyring, batch_id)
    values = {"batch_id": batch_id, "run": run}
    rows = await (await day_tables.execute(conn, errors_sql.OF_BATCH, batch_id, values)).fetchall()
    found = [
        (error, count, seq, orjson.loads(await bodies.result(seq, run, body, ok=False)) if body else {})
        for error, count, seq, body in rows
    ]
    return [FailureClass(error, count, seq, body.get("code"), body.get("message")) for error, count, seq, body in found]


async def all_refused(conn: Connection, runs: Collection[tuple[int, int]]) -> set[int]:
    """The batches of these runs, (batch, run), of which every failed item failed because its request is invalid, which is the
    caller's error.
    """
    of, refused = dict(runs), set[int]()
    for ids in day_tables.by_day(of):
        values = {"ids": ids, "runs": [of[batch_id] for batch_id in ids], "code": str(BadInput.code)}
        cursor = await day_tables.execute(conn, queries.REFUSED_ALL, ids[0], values)
        refused |= {batch_id for (batch_id,) in await cursor.fetchall()}
    return refused
