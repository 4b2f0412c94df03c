"""`service_tier: "flex"`: a synchronous call that waits in the queue for idle GPU time while its client stays connected.

A client that reads nothing for some time gives up and repeats the call. So white space is sent before the answer, which JSON
allows. The first of it fixes the status at 200, and later errors are in the body. A repeated call finds the queued one. A
call that streams gets its events instead (`flex_stream`).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace

import orjson
from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from app.api import request_parsing, sync_requests
from app.api.deps import Parts
from app.api.openai import flex_stream
from app.api.openai.flex_call import FlexCall, FlexRequest
from app.api.submit_params import sent_before
from app.batches import single_request
from app.db.transient_errors import TRANSIENT
from app.errors import CallerGone, SlackwaterError
from app.queue.types import Kind
from app.tenants.service import Tenant

BLANK_SECONDS = 1.0
SILENT_SECONDS = 1.5  # until then an answer can still have its own status
_POLL_SECONDS = (0.02, 0.5)  # shortest and longest pause between two polls
_JSON = "application/json"


async def wait(flex: FlexRequest, request: Request, tenant: Tenant, parts: Parts) -> Response:
    """The answer, as soon as there is one. Raises BadInput, and NoCapacity where the request is not to wait."""
    route = request_parsing.SingleRoute(flex.route.endpoint, flex.route.examine, Kind.FLEX)
    order, admitted = await request_parsing.single_order(request, tenant, parts, route, flex.model, flex.item)
    asked, flex = flex.item, replace(flex, model=admitted.model, item=admitted.item)
    request_id = await single_request.enqueue(
        parts.database,
        parts.settings,
        order,
        flex.item,
        admitted.facts,
        asked=asked,
        values=admitted.values,
        repeated=sent_before(request.headers),
        reject_if_busy=sync_requests.rejects_if_busy(flex.item),
    )
    call = FlexCall(flex, request_id, tenant, parts)
    return await (_streamed if flex.item.get("stream") else _whole)(call, request)


async def _streamed(call: FlexCall, request: Request) -> Response:
    """The answer's events as they arrive. An early error has its own HTTP status."""
    events = flex_stream.events(call, first_seconds=SILENT_SECONDS)
    async with sync_requests.while_connected(request.receive):
        first = await anext(events)
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return StreamingResponse(
        flex_stream.frames_of(first, events, call), media_type="text/event-stream", headers=headers
    )


async def _whole(call: FlexCall, request: Request) -> Response:
    ended = asyncio.create_task(_ended(call))
    try:
        async with sync_requests.while_connected(request.receive):
            done, _ = await asyncio.wait({ended}, timeout=SILENT_SECONDS)
    except CallerGone:
        ended.cancel()
        raise
    if done:
        return Response(await ended, media_type=_JSON)
    return StreamingResponse(_blanks_then(ended), media_type=_JSON)


async def _ended(call: FlexCall) -> bytes:
    """The answer, once the call has ended."""
    pause = _POLL_SECONDS[0]
    while True:
        with suppress(*TRANSIENT):  # while the database is down, the call waits on
            if (await call.status()).finalized_at is not None:
                return await call.answer()
        await asyncio.sleep(pause)
        pause = min(2 * pause, _POLL_SECONDS[1])


async def _blanks_then(ended: "asyncio.Task[bytes]") -> AsyncIterator[bytes]:
    try:
        while not (await asyncio.wait({ended}, timeout=BLANK_SECONDS))[0]:
            yield b" \n"
        yield await ended
    except SlackwaterError as error:
        yield orjson.dumps(error.content())
    finally:
        ended.cancel()
