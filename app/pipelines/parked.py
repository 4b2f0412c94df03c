"""Items that wait for an answer from outside, without a chunk and a lease: each is held by its row in `parked`.

Whoever moves the row out of `waiting` writes the result in the same transaction, so an item gets one result: the first answer, or
the error of its timeout.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.db import day_tables
from app.db.pool import Connection
from app.engines.outcome import ErrorClass
from app.flows import rendering
from app.flows.stages import MOST_PARKED
from app.pipelines import parked_sql as queries
from app.queue import outside_results
from app.states import ParkedState
from app.webhooks import emitter

_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """A stage whose items wait. `pipeline`: its public id. `run`: of its batch."""

    pipeline: str
    stage: str
    batch_id: int
    run: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """An item that waits. `reference`: the `custom_id` of its line. `body`: what it asks, as stored. `due`: when it times out."""

    stage: str
    batch_id: int
    seq: int
    reference: str | None
    body: bytes
    due: datetime


@dataclass(frozen=True, slots=True)
class Standing:
    """A parked item: its state, and its answer if it has one, as stored. `vault`: of the placeholders in what it asks and in its
    answer.
    """

    state: ParkedState
    run: int
    vault: bytes | None
    answer: bytes | None


async def park(conn: Connection, place: Place, seqs: Sequence[int], seconds: float) -> None:
    """Let items wait, whose payloads were written in this transaction, and write their events. `seconds`: until it times out."""
    values = {"batch_id": place.batch_id, "run": place.run, "seqs": list(seqs)}
    if place.run > 1:
        await conn.execute(queries.FORGET, values)
    await conn.execute(queries.PARK, values | {"seconds": seconds})
    await emitter.emit_waiting(
        conn, batch_id=place.batch_id, run=place.run, seqs=list(seqs), pipeline=place.pipeline, stage=place.stage
    )


async def answer(
    conn: Connection, batch_id: int, seq: int, body: bytes, vault: bytes | None, was: bytes | None
) -> bool:
    """Store the answer of an item. `body`, `vault`: as they are stored; the vault is also that of what it asks, and replaces
    `was`. False: the item does not wait. Call inside a durable transaction. Raises Changed: it has another vault.
    """
    row = await (await conn.execute(queries.ANSWER, {"batch_id": batch_id, "seq": seq})).fetchone()
    if row is None:
        return False
    if vault is not None:
        await outside_results.keep_vault(conn, batch_id, seq, vault, was)
    await outside_results.store(conn, batch_id, row[0], {seq: body})
    return True


async def standing(conn: Connection, batch_id: int, seq: int) -> Standing | None:
    """A parked item. None: there is none."""
    values = {"batch_id": batch_id, "seq": seq}
    row = await (await day_tables.execute(conn, queries.STATE, batch_id, values)).fetchone()
    return None if row is None else Standing(ParkedState(row[0]), *row[1:])


async def time_out(conn: Connection) -> int:
    """Give items that are due their error, at most _AT_ONCE. Returns how many. Call inside a durable transaction."""
    rows = await (await conn.execute(queries.TIME_OUT, {"limit": _AT_ONCE})).fetchall()
    found = defaultdict[tuple[int, int, str], list[int]](list)
    for batch_id, run, seq, stage in rows:
        found[batch_id, run, stage].append(seq)
    for (batch_id, run, stage), seqs in sorted(found.items()):
        error = rendering.timed_out(stage).body
        await outside_results.store(conn, batch_id, run, dict.fromkeys(seqs, error), ErrorClass.TIMEOUT)
    return len(rows)


async def drop(conn: Connection) -> int:
    """Let the items of stages that are being cancelled, or expire, wait no more. Returns how many."""
    return (await conn.execute(queries.DROP)).rowcount


async def waiting(
    conn: Connection, pipeline_id: int, batch_id: int | None, after: tuple[int, int], limit: int
) -> list[Waiting]:
    """The items of a pipeline that wait, by stage and number. `batch_id`: of one stage only. `after`: batch and number."""
    values = {"pipeline_id": pipeline_id, "batch_id": batch_id, "after_batch": after[0], "after_seq": after[1]}
    rows = await day_tables.execute(conn, queries.WAITING, pipeline_id, values | {"limit": limit})
    return [Waiting(*row) for row in await rows.fetchall()]


async def gauges(conn: Connection) -> list[tuple[str, str, float]]:
    """For `/metrics`: the items that wait, at most MOST_PARKED."""
    row = await (await conn.execute(queries.GAUGE, {"most": MOST_PARKED})).fetchone()
    return [("parked_items", "", row[0])] if row else []
