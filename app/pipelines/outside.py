"""Who answers from outside: reads what waits, and stores answers. The first of answer and timeout wins."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import orjson

from app import off_loop
from app.admission.redaction import Redaction
from app.db.pool import Connection, Database
from app.db.transient_errors import with_retries
from app.errors import BadInput, Conflict, NotFound
from app.flows.stages import MOST_OUTSIDE_BYTES
from app.pipelines import ids, parked
from app.pipelines import parked_sql as queries
from app.pipelines.parked import Standing, Waiting
from app.policy import vaults
from app.policy.vaults import NO_VALUES, Vaults
from app.queue.bodies import StoredBodies
from app.queue.rewriting import Changed
from app.sealing.keyring import Keyring
from app.states import ParkedState
from app.tenants.service import Tenant

_FIRST = (-1, -1)
_ENDED = {
    ParkedState.ANSWERED: "has another answer",
    ParkedState.TIMED_OUT: "has timed out",
    ParkedState.DROPPED: "waits no more: its pipeline was cancelled or has expired",
}
_DEEPEST = "answer: cannot be written as JSON; it is nested too deeply"


async def waiting(
    database: Database,
    keyring: Keyring,
    tenant: Tenant,
    request_id: UUID,
    *,
    stage: str | None,
    after: tuple[str, int] | None,
    limit: int,
) -> tuple[list[Waiting], bool]:
    """The items of a pipeline that wait, their bodies opened, and whether there are more.

    `stage`: only of this one. `after`: stage and number of the last item of the page before. Raises NotFound, KeysUnavailable.
    """
    async with database.relaxed() as conn:
        pipeline_id, batch_id = await _find(conn, tenant, request_id, stage)
        last = _FIRST if after is None else ((await _find(conn, tenant, request_id, after[0]))[1] or 0, after[1])
        found = await parked.waiting(conn, pipeline_id, batch_id, last, limit + 1)
    return await _opened(database, keyring, found[:limit]), len(found) > limit


async def _opened(database: Database, keyring: Keyring, found: Sequence[Waiting]) -> list[Waiting]:
    bodies = {batch_id: StoredBodies(database, keyring, batch_id) for batch_id in {each.batch_id for each in found}}
    return [
        Waiting(
            each.stage,
            each.batch_id,
            each.seq,
            each.reference,
            await bodies[each.batch_id].payload(each.seq, each.body),
            each.due,
        )
        for each in found
    ]


@dataclass(frozen=True, slots=True)
class Keeping:
    """How answers of an account are kept: redacted, if its requests are, and sealed, if their batch is."""

    keyring: Keyring
    vaults: Vaults
    redaction: Redaction | None


async def answer(
    database: Database, keeping: Keeping, tenant: Tenant, request_id: UUID, stage: str, seq: int, value: Any
) -> None:
    """Store the answer of an item, which is handed on. The same answer again has no effect.

    Raises NotFound, Conflict (it has another answer, or waits no more), BadInput, SensitiveFound, KeysUnavailable.
    """
    _dumped(value)
    async with database.relaxed() as conn:
        _, batch_id = await _find(conn, tenant, request_id, stage)
    while True:
        async with database.relaxed() as conn:
            known = None if batch_id is None else await parked.standing(conn, batch_id, seq)
        if batch_id is None or known is None:
            raise NotFound(f"The stage {stage[:60]!r} has no item {seq} that waits for an answer.")
        with suppress(Changed):  # what it asks was redacted meanwhile
            await _stored(database, keeping, (batch_id, seq), known, value)
            return


async def _stored(database: Database, keeping: Keeping, place: tuple[int, int], known: Standing, value: Any) -> None:
    """Store an answer, or find that the item has it. Raises Changed, Conflict."""
    batch_id, seq = place
    bodies, given, vault = StoredBodies(database, keeping.keyring, batch_id), _dumped(value), None
    if keeping.redaction is not None:
        given, vault = await _redacted(bodies, keeping, keeping.redaction, place, known, value)
    sealed = await bodies.sealed_result(seq, known.run, given)

    async def store() -> Standing | None:
        async with database.transaction() as conn:
            if await parked.answer(conn, batch_id, seq, sealed, vault, known.vault):
                return None
            return await parked.standing(conn, batch_id, seq)

    standing = await with_retries(store)
    if standing is not None:
        await _check_same(bodies, seq, standing, given)


async def _redacted(
    bodies: StoredBodies, keeping: Keeping, redaction: Redaction, place: tuple[int, int], known: Standing, value: Any
) -> tuple[bytes, bytes | None]:
    """An answer without its sensitive values, and the item's new vault, which has them, too; None: there is none."""
    at, values = vaults.of_item(*place), NO_VALUES
    if known.vault is not None:
        values = keeping.vaults.opened(await bodies.vault(place[1], known.vault), at)
    found = await off_loop.searched(value, partial(redaction.redact, of_engine=False), value, values)
    if not found.values:
        return _dumped(found.item), None
    return _dumped(found.item), await bodies.sealed_vault(place[1], keeping.vaults.sealed(found.values, at))


async def _check_same(bodies: StoredBodies, seq: int, known: Standing, given: bytes) -> None:
    """Raise Conflict unless the item has this answer."""
    if known.answer is None or await bodies.result(seq, known.run, known.answer) != given:
        raise Conflict(f"The item {_ENDED.get(known.state, 'is asked anew')}.")


def _dumped(value: Any) -> bytes:
    """The answer as it is stored, the same for equal answers. Raises BadInput."""
    try:
        body = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        raise BadInput(_DEEPEST, param="answer") from None
    if len(body) > MOST_OUTSIDE_BYTES:
        message = f"answer: has {len(body):,} bytes as JSON; the most is {MOST_OUTSIDE_BYTES // 1024} KiB"
        raise BadInput(message, param="answer")
    return body


async def _find(conn: Connection, tenant: Tenant, request_id: UUID, stage: str | None) -> tuple[int, int | None]:
    """A pipeline, and the batch of a stage of it. Raises NotFound."""
    values = {"tenant_id": tenant.tenant_id, "request_id": request_id, "stage": stage}
    row = await (await conn.execute(queries.FIND, values)).fetchone()
    if row is None:
        raise NotFound(f"No pipeline found with id '{ids.format_id(request_id)}'.")
    if stage is not None and row[1] is None:
        raise NotFound(f"The pipeline has no stage {stage[:60]!r}.")
    return row[0], row[1]
