"""Background responses: created by `POST /responses` with `background: true`, then fetched, streamed, cancelled or deleted."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Literal
from uuid import UUID

import orjson
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from app.api import request_parsing, submit_params
from app.api.deps import KeyHolder, Parts, PartsDep
from app.api.openai.list_pages import PageQuery, answer, listed
from app.api.openai.metadata import read_metadata
from app.batches.openai import background_responses
from app.batches.restoring import restorer
from app.batches.validation.openai import response as examine
from app.engines.catalogue import Model
from app.engines.requests import RESPONSES
from app.errors import BadInput
from app.queue.types import Kind
from app.tenants.service import Tenant


class InputItemQuery(PageQuery):
    """The query of a listing of input items."""

    limit: int = Field(20, ge=1, le=100)
    order: Literal["asc", "desc"] = "desc"


router = APIRouter(prefix="/responses/{response_id}")

_KEEP_ALIVE = b": nothing new yet\n\n"


async def create(model: Model, item: dict[str, Any], request: Request, tenant: Tenant, parts: Parts) -> Response:
    """Queue a response. The answer is its present state, or its events as they arrive. Raises BadInput."""
    if item.get("store") is False:
        raise BadInput("store: a background response is stored until it is deleted; leave it out", param="store")
    item = {field: value for field, value in item.items() if field != "background"}
    read_metadata(item.get("metadata"))
    key = submit_params.idempotency_key(request.headers.get("idempotency-key"), "Idempotency-Key")
    route = request_parsing.SingleRoute(RESPONSES, examine, Kind.RESPONSE)
    order, admitted = request_parsing.single_order(request, tenant, parts, route, model, item, idempotency_key=key)
    again = submit_params.sent_before(request.headers)
    request_id = await background_responses.create(
        parts.database, parts.settings, order, admitted, asked=item, repeated=again
    )
    if item.get("stream"):
        return _stream(parts, tenant, request_id, -1)
    return await _shown(parts, tenant, request_id)


@router.get("")
async def retrieve(
    response_id: str,
    tenant: KeyHolder,
    parts: PartsDep,
    stream: bool = False,
    starting_after: Annotated[int, Query(ge=-1, le=2**31 - 1)] = -1,
) -> Response:
    """The state of a response; with `stream` its events after the number `starting_after`, until its end."""
    request_id = _parse(response_id)
    shown = await _shown(parts, tenant, request_id)
    return _stream(parts, tenant, request_id, starting_after) if stream else shown


@router.get("/input_items")
async def input_items(
    response_id: str, tenant: KeyHolder, parts: PartsDep, query: Annotated[InputItemQuery, Query()]
) -> Response:
    """The input items of a response, newest first, in pages."""
    single = await background_responses.get(
        parts.database, parts.settings, tenant, _parse(response_id), restorer(parts.secret_key, tenant)
    )
    found = background_responses.input_items(single)
    if query.order == "asc":
        found = found[::-1]
    if query.after is not None:
        ids = [item["id"] for item in found]
        if query.after not in ids:
            raise BadInput(f"after: no item of this response has the id {query.after[:60]!r}", param="after")
        found = found[ids.index(query.after) + 1 :]
    return listed(found[: query.limit], more=len(found) > query.limit)


@router.post("/cancel")
async def cancel(response_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Stop a response. A response that has ended does not change."""
    request_id = _parse(response_id)
    single = await background_responses.cancel(
        parts.database,
        parts.settings,
        tenant,
        request_id,
        restorer(parts.secret_key, tenant),
        partial(parts.admission.withheld, tenant.account_id),
    )
    return answer(background_responses.view(single, parts.catalogue))


@router.delete("")
async def delete(response_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Delete the request and the answer of a response."""
    await background_responses.delete(parts.database, parts.settings, tenant, _parse(response_id))
    return answer({"id": response_id, "object": "response", "deleted": True})


async def _shown(parts: Parts, tenant: Tenant, request_id: UUID) -> Response:
    single = await background_responses.get(
        parts.database,
        parts.settings,
        tenant,
        request_id,
        restorer(parts.secret_key, tenant),
        partial(parts.admission.withheld, tenant.account_id),
    )
    return answer(background_responses.view(single, parts.catalogue))


def _stream(parts: Parts, tenant: Tenant, request_id: UUID, after: int) -> Response:
    async def frames() -> AsyncIterator[bytes]:
        models, on_withheld = parts.catalogue, partial(parts.admission.withheld, tenant.account_id)
        async for event in background_responses.follow(
            parts.database, parts.settings, models, tenant, request_id, after, on_withheld
        ):
            yield (
                _KEEP_ALIVE
                if event is None
                else b"event: %b\ndata: %b\n\n"
                % (
                    str(event["type"]).encode(),
                    orjson.dumps(event),
                )
            )

    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return StreamingResponse(frames(), media_type="text/event-stream", headers=headers)


def _parse(text: str) -> UUID:
    try:
        return UUID(text.removeprefix(background_responses.PREFIX))
    except ValueError:
        raise background_responses.missing(text) from None
