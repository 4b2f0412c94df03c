"""The items of a batch with the facts of their results, page by page: when each ran, where, for how long, and why it failed."""

from dataclasses import dataclass, replace
from datetime import datetime

import orjson

from app.db import day_tables
from app.db.pool import Connection
from app.engines.outcome import meaning
from app.queue import items_sql as sql
from app.queue.bodies import StoredBodies
from app.sealing.keyring import Keyring


@dataclass(frozen=True, slots=True)
class ItemFacts:
    """An item. `ok` None: it has no result yet, and no other fact of one. `engine`: where it ran; None: not known. `code` and
    `message`: of its error. Times are in milliseconds; None: not known. `leased`: a worker has it, or its engine.
    """

    seq: int
    reference: str | None
    model: str | None
    est_tokens: int
    ok: bool | None
    error: str | None = None
    run: int | None = None
    attempt: int | None = None
    yields: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    finished_at: datetime | None = None
    engine: str | None = None
    queued_ms: int | None = None
    first_token_ms: int | None = None
    ran_ms: int | None = None
    code: int | None = None
    message: str | None = None
    leased: bool = False

    def without_words(self) -> "ItemFacts":
        """The same without a message that may quote the prompt."""
        return self if self.code is None else replace(self, message=meaning(self.code))


async def page(
    conn: Connection,
    keyring: Keyring,
    batch_id: int,
    run: int,
    *,
    after: int = 0,
    failed: bool = False,
    error: str | None = None,
    limit: int,
) -> list[ItemFacts]:
    """Items from number `after` on, in their order. `failed`: those that failed in this run; `error`: with this class.

    Raises KeysUnavailable.
    """
    query = sql.FAILED_WITH if error else sql.FAILED if failed else sql.LISTED
    values = {"batch_id": batch_id, "run": run, "after": after, "error": error, "limit": limit}
    rows = await (
        await day_tables.execute(conn, query, batch_id, {n: values[n] for n in values if f"%({n})s" in query})
    ).fetchall()
    bodies = StoredBodies(conn, keyring, batch_id)
    return [await _item(bodies, *row) for row in rows]


async def one(conn: Connection, keyring: Keyring, batch_id: int, run: int, seq: int) -> ItemFacts | None:
    """The item of this number; None: the batch has no such item. Raises KeysUnavailable."""
    values = {"batch_id": batch_id, "run": run, "seq": seq}
    row = await (await day_tables.execute(conn, sql.ONE, batch_id, values)).fetchone()
    return None if row is None else await _item(StoredBodies(conn, keyring, batch_id), *row)


async def _item(
    bodies: StoredBodies,
    leased: bool,
    seq: int,
    reference: str | None,
    model: str | None,
    est_tokens: int,
    ok: int | None,
    error: str | None,
    *rest: object,
) -> ItemFacts:
    *facts, body = rest
    of_run = rest[0]
    assert of_run is None or isinstance(of_run, int)
    problem = orjson.loads(await bodies.result(seq, of_run or 0, body, ok=False)) if isinstance(body, bytes) else {}
    known = None if ok is None else ok == 1
    found = ItemFacts(seq, reference, model, est_tokens, known, error or ("failed" if ok == 0 else None), *facts)  # type: ignore[arg-type]
    return replace(found, code=problem.get("code"), message=problem.get("message"), leased=leased)
