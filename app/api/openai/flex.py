"""`service_tier: "flex"`: a synchronous call that waits in the queue for idle GPU time, as long as its caller holds the line.

A client gives up when it has read nothing for a while, and sends the call again. So blanks are sent before the answer, which
JSON allows; with the first of them the status is 200, and what goes wrong later stands in the body. A call that is sent again
all the same finds the one that was sent before. One that streams is told its events instead (`flex_stream`).
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from app import trace_context
from app.api import sync_requests
from app.api.deps import Parts
from app.api.openai import flex_stream
from app.api.openai.flex_call import FlexCall, FlexRequest
from app.api.submit_params import sent_before
from app.batches import single_request
from app.batches.submit import Order, rules_of
from app.batches.validation.text_generation import ItemError, ItemFacts
from app.errors import BadInput, SlackwaterError
from app.queue.answer_lengths import UsualLength
from app.queue.types import Kind
from app.tenants.service import Tenant

BLANK_SECONDS = 1.0
SILENT_SECONDS = 1.5  # so long an answer may still have a status of its own
_LOOK_SECONDS = (0.02, 0.5)  # shortest and longest pause between two looks
_JSON = "application/json"


async def wait(asked: FlexRequest, request: Request, tenant: Tenant, parts: Parts) -> Response:
    """The answer, as soon as there is one. Raises BadInput, NoCapacity where the caller would rather not wait."""
    facts = _examined(asked, parts.lengths.of(tenant.tenant_id))
    order = Order(
        tenant,
        asked.model,
        request.state.request_id,
        trace_context.parse(request.headers.get(trace_context.HEADER)),
        request.headers.get("x-session-affinity"),
        endpoint=asked.endpoint,
        kind=Kind.FLEX,
        open_ended=True,
    )
    hurried = (asked.item.get("options") or {}).get("rejectIfBusy") is True
    request_id = await single_request.enqueue(
        parts.database, parts.settings, order, asked.item, facts, repeated=sent_before(request.headers), hurried=hurried
    )
    call = FlexCall(asked, request_id, tenant, parts)
    return await (_streamed if asked.item.get("stream") else _whole)(call, request)


async def _streamed(call: FlexCall, request: Request) -> Response:
    """The answer's events as they come. What goes wrong soon has a status of its own."""
    events = flex_stream.events(call, first_seconds=SILENT_SECONDS)
    async with sync_requests.while_there(request.receive):
        first = await anext(events)
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return StreamingResponse(
        flex_stream.frames_of(first, events, call), media_type="text/event-stream", headers=headers
    )


async def _whole(call: FlexCall, request: Request) -> Response:
    ended = asyncio.create_task(_ended(call))
    try:
        async with sync_requests.while_there(request.receive):
            done, _ = await asyncio.wait({ended}, timeout=SILENT_SECONDS)
    except sync_requests.CallerGone:
        ended.cancel()
        raise
    if done:
        return Response(orjson.dumps(await ended), media_type=_JSON)
    return StreamingResponse(_blanks_then(ended), media_type=_JSON)


def _examined(asked: FlexRequest, usual: UsualLength) -> ItemFacts:
    try:
        return asked.examine(asked.item, rules_of(asked.model, usual, stream=True))
    except ItemError as error:
        raise BadInput(f"Bad input: {error}", param=error.field or None) from None


async def _ended(call: FlexCall) -> dict[str, Any]:
    """The answer once the call has come to its end."""
    pause = _LOOK_SECONDS[0]
    while (await call.status()).finalized_at is None:
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LOOK_SECONDS[1])
    return await call.answer()


async def _blanks_then(ended: "asyncio.Task[dict[str, Any]]") -> AsyncIterator[bytes]:
    try:
        while not (await asyncio.wait({ended}, timeout=BLANK_SECONDS))[0]:
            yield b" \n"
        yield orjson.dumps(await ended)
    except SlackwaterError as error:
        kind = "invalid_request_error" if error.status < 500 else "server_error"
        yield orjson.dumps({"error": {"message": error.message, "type": kind, "param": None, "code": error.reason}})
    finally:
        ended.cancel()
