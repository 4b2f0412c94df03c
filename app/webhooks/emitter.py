"""Writes events. Each function runs in the transaction of its caller, so an event exists only if its cause was committed.

Who calls them, by event:

    batch.queued                                  app.batches.submit; a retry: app.batches.lifecycle
    batch.started, .progress, .at_risk            app.batches.progress_events
    batch.succeeded, .failed, .cancelled, .expired, response.*
                                                  app.batches.final_events; a refused file: app.batches.openai.file_batches
    item.succeeded, .failed                       workers.gpu.result_writer
    item.waiting                                  app.pipelines.parked
    budget.alert, .spent, .renewed, .diverted      app.budgets.service
    conversation.filling                          app.sessions.growth
    quota.reached                                 app.admission.quota_events
    policy.applied                                app.admission.policy_versions
    audit.signed                                  app.batches.audit_events
    endpoint.failing, .disabled                   app.webhooks.endpoint_state
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from app import events
from app.db import day_tables
from app.db.pool import Connection
from app.events import EventData, EventKind
from app.webhooks import events_sql as sql

_COLUMNS = ("tenant_id", "kind", "model", "batch_id", "run", "n")


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event of an account. `model`: empty if it is of none. `n`: see `emit_all`."""

    tenant_id: int
    kind: EventKind
    model: str
    batch_id: int | None
    run: int | None
    data: EventData
    n: int = 0


async def emit_all(conn: Connection, new: Sequence[NewEvent]) -> None:
    """Write events and their deliveries in one statement. A second event of the same (batch, run, kind, n) is ignored."""
    if not new:
        return
    values: dict[str, list[object]] = {name: [getattr(each, name) for each in new] for name in _COLUMNS}
    values["request_id"] = [None if each.batch_id is None else each.data.request_id for each in new]
    values["data"] = [events.to_json(each.data) for each in new]
    await conn.execute(sql.EMIT.encode(), values)


async def emit(
    conn: Connection,
    *,
    tenant_id: int,
    kind: EventKind,
    model: str,
    batch_id: int | None,
    run: int | None,
    data: EventData,
    n: int = 0,
) -> None:
    """As `emit_all`, one event."""
    await emit_all(conn, [NewEvent(tenant_id, kind, model, batch_id, run, data, n)])


async def emit_items(conn: Connection, *, batch_id: int, run: int, seqs: Sequence[int]) -> None:
    """Write the events of the items whose results were stored in this transaction."""
    values = {"batch_id": batch_id, "run": run, "seqs": list(seqs)}
    await day_tables.execute(conn, sql.EMIT_ITEMS, batch_id, values)


async def emit_waiting(
    conn: Connection, *, batch_id: int, run: int, seqs: Sequence[int], pipeline: str, stage: str
) -> None:
    """Write the events of the items of a stage that begin to wait for an answer from outside in this transaction."""
    values = {"batch_id": batch_id, "run": run, "seqs": list(seqs), "pipeline": pipeline, "stage": stage}
    await day_tables.execute(conn, sql.EMIT_WAITING, batch_id, values)


async def emit_test(conn: Connection, tenant_id: int, endpoint_id: UUID, kind: str, data: EventData) -> int | None:
    """Write an event of no batch for one endpoint. Returns the delivery's id; None: there is no such endpoint."""
    values = {"tenant_id": tenant_id, "endpoint_id": endpoint_id, "kind": kind, "data": events.to_json(data)}
    row = await (await conn.execute(sql.EMIT_TEST.encode(), values)).fetchone()
    return row[0] if row else None


async def subscribed(conn: Connection, kinds: Sequence[str]) -> set[tuple[int, str]]:
    """The pairs of a tenant and one of these kinds for which the tenant has an endpoint."""
    rows = await (await conn.execute(sql.SUBSCRIBED.encode(), [list(kinds)])).fetchall()
    return {(tenant_id, kind) for tenant_id, kind in rows}


async def subscribed_to_items(conn: Connection, tenant_id: int) -> bool:
    """Whether the tenant has an endpoint for `item.*` events."""
    row = await (await conn.execute(sql.SUBSCRIBED_TO_ITEMS.encode(), [tenant_id])).fetchone()
    return bool(row and row[0])
