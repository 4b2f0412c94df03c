"""Stored responses: fetched, listed, deleted; those in the background also streamed and cancelled.

A response that was stored with its answer is a turn. Until then, and for its events, its batch is read.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Annotated, Any, Literal
from uuid import UUID

import orjson
from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from app import off_loop
from app.api.deps import KeyHolder, Parts, PartsDep
from app.api.openai.list_pages import PageQuery, answer, listed
from app.api.openai.turns import readable
from app.batches.openai import background_responses
from app.batches.restoring import restorer
from app.errors import BadInput, PlaceUnknown
from app.queue import response_log
from app.queue.types import Kind
from app.sessions import changes, queued, reading, transcript
from app.sessions.service import StoredTurn
from app.sessions.transcript import Item
from app.tenants.service import Tenant


class InputItemQuery(PageQuery):
    """The query of a listing of input items."""

    limit: int = Field(20, ge=1, le=100)
    order: Literal["asc", "desc"] = "desc"


router = APIRouter(prefix="/responses/{response_id}")

_KEEP_ALIVE = b": nothing new yet\n\n"


@router.get("")
async def retrieve(
    response_id: str,
    tenant: KeyHolder,
    parts: PartsDep,
    stream: bool = False,
    starting_after: Annotated[int, Query(ge=-1, le=2**31 - 1)] = -1,
) -> Response:
    """The state of a response; with `stream` the events of a background one after the number `starting_after`, until its end."""
    request_id = _parse(response_id)
    now = await _shown(parts, tenant, request_id)
    return events(parts, tenant, request_id, starting_after) if stream else now


@router.get("/input_items")
async def input_items(
    response_id: str, tenant: KeyHolder, parts: PartsDep, query: Annotated[InputItemQuery, Query()]
) -> Response:
    """The input items of a response, newest first, in pages."""
    turn = await _turn(parts, tenant, _parse(response_id))
    if turn is None:
        single = await background_responses.get(
            parts.database, parts.settings, tenant, _parse(response_id), restorer(parts.secret_key, tenant)
        )
        given, turn_id = transcript.as_items(single.request["input"]), single.status.request_id
    else:
        given, turn_id = await off_loop.of_size(turn.size, readable, turn, list(turn.given), tenant), turn.turn_id
    return await off_loop.done(given, _listed, given, turn_id, query)


def _listed(given: list[Item], turn_id: UUID, query: InputItemQuery) -> Response:
    """The page of these items of a turn. Raises PlaceUnknown."""
    found = transcript.shown_items(given, turn_id)
    if query.after is not None:
        if transcript.turn_of(query.after) != turn_id:
            raise PlaceUnknown(query.after)
        before, behind = transcript.around(found, query.after)
        found = found[len(found) - behind :] if query.order == "asc" else found[:before]
    if query.order == "desc":
        found = found[::-1]
    return listed(found[: query.limit], more=len(found) > query.limit)


@router.post("/cancel")
async def cancel(response_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Stop a response in the background. A response that has ended does not change."""
    request_id = _parse(response_id)
    turn = await _turn(parts, tenant, request_id)
    if turn is not None and turn.batch_id is None:
        raise BadInput("Only a response that was created with background: true can be cancelled.")
    single = await background_responses.cancel(
        parts.database,
        parts.settings,
        tenant,
        request_id,
        restorer(parts.secret_key, tenant),
        partial(parts.admission.withheld, tenant.account_id),
    )
    return answer(background_responses.view(single, parts.catalogue) | (queued.continued(turn) if turn else {}))


@router.delete("")
async def delete(response_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Delete the request and the answer of a response, also from its conversation."""
    request_id = _parse(response_id)
    turn = await _turn(parts, tenant, request_id)
    if turn is not None and (turn.batch_id is None or not await _has_batch(parts, tenant, request_id)):
        await changes.delete_turn(parts.keeper(tenant), tenant.account_id, turn)
    else:
        async with nullcontext() if turn is None else changes.forgetting(parts.keeper(tenant), turn) as forget:
            await background_responses.delete(parts.database, parts.settings, tenant, request_id, forget)
    return answer({"id": response_id, "object": "response", "deleted": True})


async def _has_batch(parts: Parts, tenant: Tenant, request_id: UUID) -> bool:
    """Whether the batch of a background response still has its contents: retention may have been first."""
    async with parts.database.relaxed() as conn:
        return await response_log.find(conn, tenant.tenant_id, request_id, Kind.RESPONSE) is not None


async def _turn(parts: Parts, tenant: Tenant, request_id: UUID) -> StoredTurn | None:
    return await reading.find(parts.keeper(tenant), request_id)


async def _shown(parts: Parts, tenant: Tenant, request_id: UUID) -> Response:
    turn = await _turn(parts, tenant, request_id)
    if turn is not None and (response := turn.response) is not None:
        return await off_loop.of_size(turn.size, lambda: answer(readable(turn, response, tenant)))
    return await queued_view(parts, tenant, request_id, queued.continued(turn) if turn else {})


async def queued_view(parts: Parts, tenant: Tenant, request_id: UUID, more: Mapping[str, object]) -> Response:
    """The present state of a background response by its batch, with these fields. Raises NotFound."""
    single = await background_responses.get(
        parts.database,
        parts.settings,
        tenant,
        request_id,
        restorer(parts.secret_key, tenant),
        partial(parts.admission.withheld, tenant.account_id),
    )
    return answer({**background_responses.view(single, parts.catalogue), **more})


def events(parts: Parts, tenant: Tenant, request_id: UUID, after: int) -> Response:
    """The events of a background response after this number, as they arrive."""

    async def frames() -> AsyncIterator[bytes]:
        models, on_withheld = parts.catalogue, partial(parts.admission.withheld, tenant.account_id)
        turn = await _turn(parts, tenant, request_id)
        more = queued.continued(turn) if turn else {}
        async for event in background_responses.follow(
            parts.database, parts.settings, models, tenant, request_id, after, on_withheld
        ):
            yield _KEEP_ALIVE if event is None else _frame(event, more)

    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return StreamingResponse(frames(), media_type="text/event-stream", headers=headers)


def _frame(event: dict[str, Any], more: Mapping[str, object]) -> bytes:
    """An event of a stream. `more`: the fields of its response that say what it continues."""
    shown = event | {"response": event["response"] | more} if "response" in event else event
    return b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), orjson.dumps(shown))


def _parse(text: str) -> UUID:
    try:
        return UUID(text.removeprefix(background_responses.PREFIX))
    except ValueError:
        raise background_responses.missing(text) from None
