"""The hand-off of results to the batches that are made from them: markers, and packs that wait for inputs. Verbs of the steward.

`app.pipelines.feeding` makes the children. A marker is deleted in the transaction that writes them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.db.pool import Connection
from app.queue import handoff_sql as queries

MARKED_ITEMS = 128  # items of one marker that is not written by a flush
_LOOKED_AT = 64


@dataclass(frozen=True, slots=True)
class Marker:
    """Items of a batch whose results of this run are to be handed on. Run `PACKS`: numbers of packs that are to be made.

    `bytes`: of the results. `tries`: how often it has failed.
    """

    handoff_id: int
    batch_id: int
    run: int
    seqs: list[int]
    bytes: int
    tries: int

    @property
    def of_packs(self) -> bool:
        """Whether it names packs."""
        return self.run == queries.PACKS


Pack = tuple[int, int]  # the stage's batch, the number


async def look(conn: Connection) -> list[Marker]:
    """The markers that come next, those of inputs last."""
    return [Marker(*row) for row in await (await conn.execute(queries.LOOK, {"limit": _LOOKED_AT})).fetchall()]


async def exclusively(conn: Connection) -> None:
    """Let no other feeder write until this transaction ends."""
    await conn.execute(queries.ONE_AT_A_TIME)


async def take(conn: Connection, markers: Sequence[Marker]) -> bool:
    """Delete the markers. False: another feeder has handed some of them on; roll back."""
    return len(await (await conn.execute(queries.TAKE, _these(markers))).fetchall()) == len(markers)


async def rest(conn: Connection, markers: Sequence[Marker]) -> None:
    """Leave the markers of pipelines that do not run, until `resume`."""
    if markers:
        await conn.execute(queries.REST, _these(markers))


async def resume(conn: Connection, batch_ids: Sequence[int]) -> None:
    """Hand on what rests of these batches, or was set aside."""
    await conn.execute(queries.RESUME, {"batch_ids": list(batch_ids)})


async def postpone(conn: Connection, marker: Marker, seconds: float) -> None:
    """Try this marker again so much later."""
    await conn.execute(queries.POSTPONE, _these([marker]) | {"seconds": seconds})


async def note_failure(conn: Connection, marker: Marker) -> bool:
    """Try this marker again later. False: it was the last try, and the marker is set aside."""
    row = await (await conn.execute(queries.FAILED, _these([marker]))).fetchone()
    return row is None or row[0] < queries.MOST_TRIES


def _these(markers: Sequence[Marker]) -> dict[str, Any]:
    return {"batch_ids": [each.batch_id for each in markers], "ids": [each.handoff_id for each in markers]}


async def add(
    conn: Connection, batch_id: int, run: int, seqs: Sequence[int], *, size: int = 0, inputs: bool = False
) -> None:
    """Mark items whose results are to be handed on, or with run `PACKS` packs that are to be made."""
    for low in range(0, len(seqs), MARKED_ITEMS):
        part = list(seqs[low : low + MARKED_ITEMS])
        values = {"batch_id": batch_id, "run": run, "seqs": part, "bytes": size * len(part) // len(seqs)}
        await conn.execute(queries.ADD, values | {"input": inputs})


async def open_inputs(conn: Connection, packs: Collection[Pack]) -> dict[Pack, int]:
    """How many inputs those of the packs wait for that are known."""
    values = {"batch_ids": [batch_id for batch_id, _ in packs], "seqs": [seq for _, seq in packs]}
    rows = await (await conn.execute(queries.OPEN, values)).fetchall()
    return {(batch_id, seq): waits for batch_id, seq, waits in rows}


async def count(conn: Connection, packs: Mapping[Pack, int]) -> None:
    """Store how many inputs the packs wait for."""
    values = {"batch_ids": [batch_id for batch_id, _ in packs], "seqs": [seq for _, seq in packs]}
    await conn.execute(queries.COUNT, values | {"open": list(packs.values())})


async def close(conn: Connection) -> list[int]:
    """End the feeding of batches whose parent is final and handed on. Returns them."""
    return [batch_id for (batch_id,) in await (await conn.execute(queries.CLOSE)).fetchall()]


async def ripe(conn: Connection) -> list[int]:
    """Batches that pack by value, and whose packs can be made because their parent is final and handed on."""
    return [batch_id for (batch_id,) in await (await conn.execute(queries.RIPE)).fetchall()]
