"""Background responses: OpenAI's Responses API with `background: true`, through the queue.

Shapes: openai-python 3.52, `types/responses/response.py`. The engine's answer is passed on under our id.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from app import clock
from app.admission.admission import Admitted
from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record
from app.batches import lifecycle, single_request
from app.batches.restoring import Restorer
from app.batches.single_request import SingleRequest
from app.batches.submit import Order, Register
from app.batches.validation.text_generation import ItemFacts
from app.batches.withholding import OnWithheld, unnoted, withholder
from app.db.pool import Connection, Database
from app.engines.catalogue import Catalogue
from app.engines.pricing import with_cost
from app.engines.request_echo import ECHOED, echo, repeated
from app.errors import Conflict, NotFound
from app.policy.tool_call_events import EventWithholder
from app.queue import response_log
from app.queue.bodies import BatchSeal
from app.queue.ingest import NewBatch
from app.queue.types import Kind
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.states import BatchState
from app.storage.store import Store
from app.tenants.service import Tenant

PREFIX = "resp_"
POLL_SECONDS = (0.05, 1.0)  # shortest and longest pause between two polls for further events
SILENT_SECONDS = 10.0  # pause between two comments in a stream without events
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_OUR_FIELDS = frozenset({"id", "background", "created_at", "store", "metadata", "model", *ECHOED})
_CANCELLED = (BatchState.CANCELLING, BatchState.CANCELLED)
# Fields of a request that its response repeats, with their default values.
_REPEATED: dict[str, Any] = {
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": None,
    "temperature": None,
    "text": None,
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "user": None,
}


def name(request_id: UUID) -> str:
    """The id of a response in the form that callers use."""
    return PREFIX + request_id.hex


async def create(
    database: Database,
    settings: Settings,
    order: Order,
    admitted: Admitted[ItemFacts],
    *,
    asked: dict[str, Any],
    repeated: bool = False,
    also: Register | None = None,
) -> UUID:
    """Queue a response. `asked`: as its client sent it. A response that streams has its first events from the start. `also`: see
    `submit.commit`.
    """
    item = admitted.item

    async def register(conn: Connection, batch: NewBatch, seal: BatchSeal | None) -> None:
        if item.get("stream"):
            begun = _view(batch.request_id, clock.now(), item, "queued")
            first = [{"type": f"response.{kind}", "response": begun} for kind in ("created", "queued")]
            await response_log.begin_events(conn, batch.batch_id, [orjson.dumps(event) for event in first], seal)
        if also is not None:
            await also(conn, batch, seal)

    return await single_request.enqueue(
        database,
        settings,
        order,
        item,
        admitted.facts,
        asked=asked,
        values=admitted.values,
        repeated=repeated,
        register=register,
    )


async def get(
    database: Database,
    settings: Settings,
    tenant: Tenant,
    request_id: UUID,
    restoring: Restorer | None = None,
    on_withheld: OnWithheld = unnoted,
) -> SingleRequest:
    """A background response of the tenant. Raises NotFound."""
    found = await single_request.find(
        database, settings, tenant.tenant_id, request_id, Kind.RESPONSE, restoring, on_withheld
    )
    if found is None:
        raise missing(name(request_id))
    return found


async def cancel(
    database: Database,
    settings: Settings,
    tenant: Tenant,
    request_id: UUID,
    restoring: Restorer | None = None,
    on_withheld: OnWithheld = unnoted,
) -> SingleRequest:
    """Stop a response, unless it has ended. Raises NotFound."""
    found = await get(database, settings, tenant, request_id, restoring, on_withheld)
    if found.status.finalized_at is None:
        with suppress(Conflict):  # it ended in the meantime
            await lifecycle.change_state(database, tenant, request_id, "cancel")
        found = await get(database, settings, tenant, request_id, restoring, on_withheld)
    return found


async def delete(
    database: Database,
    settings: Settings,
    tenant: Tenant,
    request_id: UUID,
    also: Callable[[Connection], Awaitable[None]] | None = None,
) -> None:
    """Delete its request and its answer. `also`: in the same transaction. Raises NotFound, Conflict while it runs."""
    found = await get(database, settings, tenant, request_id)
    if found.status.finalized_at is None:
        raise Conflict(f"Cannot delete a response with status '{status_of(found)}'; cancel it first.")
    async with database.transaction() as conn:
        keys = await response_log.forget(conn, found.status.batch_id)
        if also is not None:
            await also(conn)
        await log.record(conn, Record(Act.RESPONSE_DELETE, PREFIX + request_id.hex, tenant.account_id))
    if keys:
        await Store.of(settings).delete(keys)


def missing(text: str) -> NotFound:
    """The error for an unknown id."""
    return NotFound(f"Response with id '{text[:60]}' not found: it was not stored, or was deleted.")


# ── views ──────────────────────────────────────────────────────────────────────────────────────────────────


def status_of(single: SingleRequest) -> str:
    """`queued`, `in_progress`, `completed`, `incomplete`, `failed` or `cancelled`."""
    status = single.status
    if status.state in _CANCELLED:
        return "cancelled"
    if status.finalized_at is None:
        return "in_progress" if status.started else "queued"
    if status.state != BatchState.COMPLETED:
        return "failed"
    return str(orjson.loads(single.result.body or b"{}").get("status", "completed"))


def view(single: SingleRequest, models: Catalogue) -> dict[str, Any]:
    """A response in the form that OpenAI's clients read."""
    state = status_of(single)
    if state in ("completed", "incomplete"):
        return _answered(single, orjson.loads(single.result.body or b"{}"), models)
    ours = _view(single.status.request_id, single.status.created_at, single.request, state)
    return ours | {"error": _error(single.result.body)} if state == "failed" else ours


def _view(request_id: UUID, created_at: datetime, request: dict[str, Any], state: str) -> dict[str, Any]:
    return {
        "id": name(request_id),
        "object": "response",
        "created_at": int(created_at.timestamp()),
        "status": state,
        "background": True,
        "error": None,
        "incomplete_details": None,
        "model": request.get("model"),
        "output": [],
        "previous_response_id": None,
        "store": True,
        "usage": None,
        **repeated(request, _REPEATED),
        **echo(request),
    }


def _answered(single: SingleRequest, answer: dict[str, Any], models: Catalogue) -> dict[str, Any]:
    """The response with the engine's fields, final or not. The fields in `_OUR_FIELDS` are ours."""
    status, model = single.status, models.resolve(single.status.model)
    ours = _view(status.request_id, status.created_at, single.request, str(answer.get("status", "completed")))
    theirs = {field: value for field, value in answer.items() if field not in _OUR_FIELDS}
    if answer.get("usage"):
        price = model.price_of(status.work, status.created_at) if model else None
        theirs["usage"] = with_cost(answer["usage"], price)
    return ours | theirs


def _error(body: bytes | None) -> dict[str, str]:
    late = {"code": 0, "message": "The response was not finished in time."}
    error: dict[str, Any] = orjson.loads(body) if body else late
    return {"code": "invalid_prompt" if error["code"] == 5006 else "server_error", "message": error["message"]}


# ── events ──────────────────────────────────────────────────────────────────────────────────────────────────


async def follow(
    database: Database,
    settings: Settings,
    models: Catalogue,
    tenant: Tenant,
    request_id: UUID,
    after: int,
    on_withheld: OnWithheld = unnoted,
) -> AsyncIterator[dict[str, Any] | None]:
    """The events after the number `after`, until the response ends; None after `SILENT_SECONDS` without an event.

    The last event is sent after the response has reached the state in it. Where a final response has no last event, one is
    made from its state.
    """
    pause, silent, read = POLL_SECONDS[0], 0.0, after
    withholding: EventWithholder | None = None
    while True:
        single = await single_request.find(database, settings, tenant.tenant_id, request_id, Kind.RESPONSE)
        if single is None:  # it was deleted in the meantime
            return
        final = single.status.finalized_at is not None or single.status.state in _CANCELLED
        if withholding is None and (found := withholder(single.status.policy, request_id, on_withheld)) is not None:
            withholding, read = found.events(), -1  # what is withheld of a call depends on the events before
        async with database.relaxed() as conn:
            events = await response_log.events(conn, single.status.batch_id, read, Keyring.of(settings))
        for number, event in _sendable(events, final=final):
            read, ours = number, event | {"sequence_number": number}
            for shown in [ours] if withholding is None else withholding.feed(ours):
                if shown["sequence_number"] > after:
                    yield _ours(shown, single, models)
            if event["type"] in _ENDS:
                return
            pause, silent = POLL_SECONDS[0], 0.0
        if final and not events:
            yield {
                "type": f"response.{status_of(single)}",
                "sequence_number": max(after, read) + 1,
                "response": view(single, models),
            }
            return
        await asyncio.sleep(pause)
        silent, pause = silent + pause, min(2 * pause, POLL_SECONDS[1])
        if silent >= SILENT_SECONDS:
            silent = 0.0
            yield None


def _sendable(events: Sequence[tuple[int, dict[str, Any]]], *, final: bool) -> list[tuple[int, dict[str, Any]]]:
    """Of the next events those that can be sent. `final`: the response has ended, so its last event can be sent, too."""
    found = []
    for number, event in events:
        if event["type"] in _ENDS:
            if number < events[-1][0]:  # that answer was lost, and started again
                continue
            if not final:
                break
        found.append((number, event))
    return found


def _ours(event: dict[str, Any], single: SingleRequest, models: Catalogue) -> dict[str, Any]:
    """An event with the response in our form."""
    return event | {"response": _answered(single, event["response"], models)} if "response" in event else event
