"""The life of a pipeline after its create: pause, resume, cancel, its own pauses, and its end. A retry: `retrying`.

Each verb is one durable transaction: the rows (`verbs`), the audit record, the events.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record
from app.batches import final_events
from app.db.pool import Connection, Database
from app.errors import Conflict, NotFound
from app.events import Counts
from app.flows.stages import MOST_TIMES_INPUT
from app.pipelines import events, ids, models, verbs
from app.pipelines import lifecycle_sql as sql
from app.pipelines.drafting import NANO
from app.pipelines.events import EndedStage, Told
from app.pipelines.verbs import Ended, Verb
from app.pipelines.waiting import Pause
from app.queue import batch_state, wakes
from app.queue.settling import Settled
from app.states import PIPELINE, BatchState
from app.tenants.service import Tenant

LEAST_RESULTS, MOST_FAILING = 50, 0.2
_ACTS = {"pause": Act.PIPELINE_PAUSE, "resume": Act.PIPELINE_RESUME, "cancel": Act.PIPELINE_CANCEL}
_REACHED = {
    "pause": (BatchState.PAUSED,),
    "resume": (BatchState.OPEN,),
    "cancel": (BatchState.CANCELLING, BatchState.CANCELLED),
}
_DONE = {"pause": "paused", "resume": "resumed", "cancel": "cancelled"}

Terms = Mapping[str, object]  # of a pipeline, as the audit log has them


async def change_state(
    database: Database, tenant: Tenant, request_id: UUID, verb: Verb, usd: float | None = None
) -> None:
    """Pause, resume or cancel. A repeated verb has no effect. `usd`: with resume, the new budget, also of one that runs.

    Raises NotFound, Conflict, BadInput.
    """
    ready: dict[str, int] = {}
    async with database.transaction() as conn:
        moved = await verbs.transition(conn, verb, tenant.tenant_id, request_id)
        if moved is None:
            pipeline_id = await _check_reached(conn, tenant, request_id, verb)
            if usd is not None:
                await _record(conn, tenant, request_id, verb, *await _new_budget(conn, pipeline_id, usd))
            return
        pipeline_id, before, ended = moved
        old, new = await _new_budget(conn, pipeline_id, usd)
        terms, after = {"state": str(before), **old}, {"state": str(PIPELINE.target(verb)), **new}
        await _record(conn, tenant, request_id, verb, terms, after)
        if verb == "resume":
            await conn.execute(sql.OVERRULE, {"pipeline_id": pipeline_id})
            ready = await batch_state.ready_chunks_of(conn, pipeline_id)
        if verb == "pause":
            await _tell_pause(conn, pipeline_id, None)
        await final_events.write(conn, ended)
        await tell_stages(conn, ended)
    wakes.notify(ready)


async def _record(conn: Connection, tenant: Tenant, request_id: UUID, verb: Verb, before: Terms, after: Terms) -> None:
    await log.record(
        conn, Record(_ACTS[verb], ids.format_id(request_id), tenant.account_id, before=before, after=after)
    )


async def _new_budget(conn: Connection, pipeline_id: int, usd: float | None) -> tuple[Terms, Terms]:
    """Set the budget of a pipeline, if there is a new one. Returns the terms before and after. Raises BadInput, Conflict."""
    if usd is None:
        return {}, {}
    models.check_counted(await (await conn.execute(sql.PAID, {"pipeline_id": pipeline_id})).fetchall())
    values = {"pipeline_id": pipeline_id, "budget": round(usd * NANO)}
    row = await (await conn.execute(sql.BUDGET, values)).fetchone()
    if row is None:
        raise Conflict("The pipeline has ended; retry it to run what has no answer")
    return {"budget_usd": None if row[0] is None else row[0] / NANO}, {"budget_usd": usd}


async def _check_reached(conn: Connection, tenant: Tenant, request_id: UUID, verb: Verb) -> int:
    """Raise unless the verb was done before. Returns the id of the pipeline."""
    standing = await verbs.standing(conn, tenant.tenant_id, request_id)
    if standing is None:
        raise NotFound(f"No pipeline found with id '{ids.format_id(request_id)}'.")
    if standing.state not in _REACHED[verb]:
        sources = next(t.sources for t in PIPELINE.transitions if t.verb == verb)
        message = f"only one that is {' or '.join(sources)} can be {_DONE[verb]}"
        raise Conflict(f"The pipeline is {standing.state}: {message}")
    return standing.pipeline_id


async def pause_exceeded(conn: Connection) -> list[tuple[UUID, Pause]]:
    """Pause the pipelines that have used their budget, whose items fail, or that have too many items. For the steward, inside a
    durable transaction. Returns them with the reasons.
    """
    values = {"least": LEAST_RESULTS, "share": MOST_FAILING, "times": MOST_TIMES_INPUT}
    found = await (await conn.execute(sql.EXCEEDED, values)).fetchall()
    paused = []
    for tenant_id, request_id, _, why in found:
        if await pause(conn, tenant_id, request_id, Pause(why)):
            paused.append((request_id, Pause(why)))
    return paused


async def pause(conn: Connection, tenant_id: int, request_id: UUID, why: Pause) -> bool:
    """Pause a pipeline for a reason of its own. Call in a durable transaction. False: its state forbids it."""
    moved = await verbs.transition(conn, "pause", tenant_id, request_id, why)
    if moved is not None:
        await _tell_pause(conn, moved[0], why)
    return moved is not None


async def tell_stages(conn: Connection, settled: Sequence[Settled]) -> None:
    """Write `stage.ended` of the batches that have just become final. Call in the transaction that ended them."""
    if not settled:
        return
    values = {"batch_ids": [each.batch_id for each in settled]}
    rows = await (await conn.execute(sql.ENDED_STAGES, values)).fetchall()
    known = await _told(conn, list({row[0] for row in rows}))
    ended = [
        (known[pipeline_id][0], EndedStage(n, name, request_id, Counts.of(total, ok, failed)))
        for pipeline_id, n, name, request_id, total, ok, failed in rows
    ]
    await events.stages_ended(conn, ended)


async def tell_ends(conn: Connection, ended: Sequence[Ended]) -> None:
    """Write the events of the pipelines that have just become final. Call in the transaction that ended them."""
    known = await _told(conn, [each.pipeline_id for each in ended])
    await events.ended(conn, [(known[each.pipeline_id][0], each.state) for each in ended])


async def _tell_pause(conn: Connection, pipeline_id: int, why: Pause | None) -> None:
    of, second = (await _told(conn, [pipeline_id]))[pipeline_id]
    await events.paused(conn, of, why, second)


async def told(conn: Connection, pipeline_id: int) -> Told:
    """What events say of a pipeline."""
    return (await _told(conn, [pipeline_id]))[pipeline_id][0]


async def _told(conn: Connection, pipeline_ids: Sequence[int]) -> dict[int, tuple[Told, int]]:
    """What events say of pipelines, and the seconds since their creation."""
    if not pipeline_ids:
        return {}
    rows = await (await conn.execute(sql.TOLD, {"pipeline_ids": list(pipeline_ids)})).fetchall()
    return {row[0]: (Told(*row[:7]), row[7]) for row in rows}
