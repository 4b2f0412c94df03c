"""Background responses: OpenAI's Responses API with `background: true`, over the queue.

Shapes: openai-python 3.52, `types/responses/response.py`. What the engine answers is given on under our id.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from app import clock
from app.batches import lifecycle, single_request
from app.batches.single_request import Single
from app.batches.submit import Order
from app.batches.validation.text_generation import ItemFacts
from app.db.pool import Connection, Database
from app.engines.catalogue import Catalogue
from app.engines.pricing import with_cost
from app.engines.request_echo import ECHOED, echo, repeated
from app.errors import Conflict, NotFound
from app.queue import response_log
from app.queue.ingest import NewBatch
from app.queue.types import Kind
from app.settings import Settings
from app.states import BatchState
from app.storage.store import Store
from app.tenants.service import Tenant

PREFIX = "resp_"
LOOK_SECONDS = (0.05, 1.0)  # shortest and longest pause between two looks for further events
SILENT_SECONDS = 10.0  # a stream that has nothing to tell says so this often
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_OURS = frozenset({"id", "background", "created_at", "store", "metadata", "model", *ECHOED})
_CANCELLED = (BatchState.CANCELLING, BatchState.CANCELLED)
# What a request may say and its response repeats, with what it is where nothing was said.
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
    """The id of a response as callers see it."""
    return PREFIX + request_id.hex


async def create(
    database: Database,
    settings: Settings,
    order: Order,
    item: dict[str, Any],
    facts: ItemFacts,
    *,
    repeated: bool = False,
) -> UUID:
    """Queue a response. One that streams can be followed from the moment it is queued."""

    async def register(conn: Connection, batch: NewBatch) -> None:
        if item.get("stream"):
            begun = _view(batch.request_id, clock.now(), item, "queued")
            first = [{"type": f"response.{kind}", "response": begun} for kind in ("created", "queued")]
            await response_log.begin_events(conn, batch.batch_id, [orjson.dumps(event) for event in first])

    return await single_request.enqueue(database, settings, order, item, facts, repeated=repeated, register=register)


async def get(database: Database, settings: Settings, tenant: Tenant, request_id: UUID) -> Single:
    """A background response of the tenant. Raises NotFound."""
    found = await single_request.find(database, settings, tenant.tenant_id, request_id, Kind.RESPONSE)
    if found is None:
        raise missing(name(request_id))
    return found


async def cancel(database: Database, settings: Settings, tenant: Tenant, request_id: UUID) -> Single:
    """Stop it, unless it has ended. Raises NotFound."""
    found = await get(database, settings, tenant, request_id)
    if found.status.finalized_at is None:
        with suppress(Conflict):  # it has ended meanwhile
            await lifecycle.halt(database, tenant, request_id, "cancel")
        found = await get(database, settings, tenant, request_id)
    return found


async def delete(database: Database, settings: Settings, tenant: Tenant, request_id: UUID) -> None:
    """Forget what was asked and what was said. Raises NotFound, Conflict while it runs."""
    found = await get(database, settings, tenant, request_id)
    if found.status.finalized_at is None:
        raise Conflict(f"Cannot delete a response with status '{status_of(found)}'; cancel it first.")
    async with database.transaction() as conn:
        keys = await response_log.forget(conn, found.status.batch_id)
    if keys:
        await Store.of(settings).delete(keys)


def missing(text: str) -> NotFound:
    """What is said of an id that is none of the tenant's."""
    kept = "Only a response that was made with background: true is kept here."
    return NotFound(f"Response with id '{text[:60]}' not found. {kept}", code=404)


def input_items(single: Single) -> list[dict[str, Any]]:
    """What it was asked, the last item first, as OpenAI lists it: each with an id, text as content parts."""
    given = single.asked["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    mark = single.status.request_id.hex
    return [_input_item(item, f"{mark}_{place}") for place, item in enumerate(items)][::-1]


def _input_item(item: dict[str, Any], mark: str) -> dict[str, Any]:
    item = {name: value for name, value in item.items() if value is not None}
    kind = item.get("type", "message")
    shown = {"id": f"{'msg' if kind == 'message' else 'item'}_{mark}", "type": kind, "status": "completed", **item}
    if isinstance(shown.get("content"), str):
        part = "output_text" if item.get("role") == "assistant" else "input_text"
        shown["content"] = [{"type": part, "text": shown["content"]}]
    return shown


# ── how it looks ──────────────────────────────────────────────────────────────────────────────────────────────────


def status_of(single: Single) -> str:
    """`queued`, `in_progress`, `completed`, `incomplete`, `failed` or `cancelled`."""
    status = single.status
    if status.state in _CANCELLED:
        return "cancelled"
    if status.finalized_at is None:
        return "in_progress" if status.started else "queued"
    if status.state != BatchState.COMPLETED:
        return "failed"
    return str(orjson.loads(single.result.body or b"{}").get("status", "completed"))


def view(single: Single, models: Catalogue) -> dict[str, Any]:
    """A response as OpenAI's clients read it."""
    state = status_of(single)
    if state in ("completed", "incomplete"):
        return _answered(single, orjson.loads(single.result.body or b"{}"), models)
    ours = _view(single.status.request_id, single.status.created_at, single.asked, state)
    return ours | {"error": _error(single.result.body)} if state == "failed" else ours


def _view(request_id: UUID, created_at: datetime, asked: dict[str, Any], state: str) -> dict[str, Any]:
    return {
        "id": name(request_id),
        "object": "response",
        "created_at": int(created_at.timestamp()),
        "status": state,
        "background": True,
        "error": None,
        "incomplete_details": None,
        "model": asked.get("model"),
        "output": [],
        "previous_response_id": None,
        "store": True,
        "usage": None,
        **repeated(asked, _REPEATED),
        **echo(asked),
    }


def _answered(single: Single, answer: dict[str, Any], models: Catalogue) -> dict[str, Any]:
    """What the engine said, at its end or before; what is ours to say is said by us."""
    status, model = single.status, models.resolve(single.status.model)
    ours = _view(status.request_id, status.created_at, single.asked, str(answer.get("status", "completed")))
    said = {field: value for field, value in answer.items() if field not in _OURS}
    if answer.get("usage"):
        said["usage"] = with_cost(answer["usage"], model.price if model else None)
    return ours | said


def _error(body: bytes | None) -> dict[str, str]:
    said: dict[str, Any] = orjson.loads(body) if body else {"code": 0, "message": "The response was not made in time."}
    return {"code": "invalid_prompt" if said["code"] == 5006 else "server_error", "message": said["message"]}


# ── following it ──────────────────────────────────────────────────────────────────────────────────────────────────


async def follow(
    database: Database, settings: Settings, models: Catalogue, tenant: Tenant, request_id: UUID, after: int
) -> AsyncIterator[dict[str, Any] | None]:
    """Its events beyond the number `after`, as they happen, until its end; None where nothing has happened for a while.

    Its last event is told once it can be fetched as that event says. An answer whose last event was never written ends in one
    that is made of it.
    """
    pause, silent = LOOK_SECONDS[0], 0.0
    while True:
        single = await single_request.find(database, settings, tenant.tenant_id, request_id, Kind.RESPONSE)
        if single is None:  # it was deleted meanwhile
            return
        final = single.status.finalized_at is not None or single.status.state in _CANCELLED
        async with database.relaxed() as conn:
            found = await response_log.events(conn, single.status.batch_id, after)
        ends = [number for number, event in found if event["type"] in _ENDS]
        for number, event in found:
            if number in ends:
                if number < found[-1][0]:  # that answer was lost, and was made anew
                    continue
                if not final:
                    break
            after = number
            yield _told(event, number, single, models)
            if number in ends:
                return
            pause, silent = LOOK_SECONDS[0], 0.0
        if final and not found:
            yield {
                "type": f"response.{status_of(single)}",
                "sequence_number": after + 1,
                "response": view(single, models),
            }
            return
        await asyncio.sleep(pause)
        silent, pause = silent + pause, min(2 * pause, LOOK_SECONDS[1])
        if silent >= SILENT_SECONDS:
            silent = 0.0
            yield None


def _told(event: dict[str, Any], number: int, single: Single, models: Catalogue) -> dict[str, Any]:
    """The engine's event under our number, its response as it will be fetched."""
    told = event | {"sequence_number": number}
    return told | {"response": _answered(single, event["response"], models)} if "response" in event else told
