"""What the synchronous routes share: check a request, run it while its caller is there, answer with events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app import trace_context
from app.api import rate_limits, submit_params
from app.api.deps import Parts
from app.batches.submit import rules_of
from app.batches.validation.text_generation import ItemError, ItemFacts, ItemRules, examine
from app.engines.catalogue import Model, Price
from app.engines.requests import CHAT
from app.errors import BadInput, SlackwaterError
from app.gateway import sse_frames
from app.gateway.relay import SyncCall
from app.gateway.sse_frames import DONE, SseEvent
from app.tenants.service import Tenant

MISSING = "missing_required_parameter"  # OpenAI's code
Examine = Callable[[Any, ItemRules], ItemFacts]
Render = Callable[[SseEvent], bytes]
Events = AsyncGenerator[SseEvent, None]


@dataclass(frozen=True)
class Way:
    """How a route's bodies are checked and where they go in an engine. `open_ended`: as OpenAI's routes, where an answer without
    a limit of its own may take what is left of the context.
    """

    endpoint: str = CHAT
    examine: Examine = examine
    open_ended: bool = True


async def prepare(
    model: Model,
    item: dict[str, Any],
    request: Request,
    tenant: Tenant,
    parts: Parts,
    way: Way,
) -> tuple[SyncCall, ItemFacts]:
    """The call for the gateway, and what was found out about it. Raises BadInput naming the field, RateLimited."""
    usual = parts.lengths.of(tenant.tenant_id) if way.open_ended else None
    try:
        facts = way.examine(item, rules_of(model, usual, stream=True))
    except ItemError as error:
        missing = error.field and "." not in error.field and item.get(error.field) is None
        reason = MISSING if missing else None
        raise BadInput(f"Bad input: {error}", param=error.field or None, reason=reason) from None
    await rate_limits.count(request, tenant, parts, facts.est_tokens)
    session = request.headers.get("x-session-affinity") or request.headers.get("x-session-id") or facts.affinity
    hurried = (item.get("options") or {}).get("rejectIfBusy") is True
    prompt_tokens = facts.est_tokens - facts.answer_tokens
    call = SyncCall(
        model,
        item,
        tenant.tenant_id,
        prompt_tokens,
        facts.most_tokens,
        session,
        way.endpoint,
        hurried,
        way.open_ended,
        trace_context.parse(request.headers.get(trace_context.HEADER)),
    )
    return call, facts


class CallerGone(SlackwaterError):
    """Nobody reads the answer."""

    def __init__(self) -> None:
        super().__init__("Request was aborted", status=408, code=3008)


@asynccontextmanager
async def while_there(receive: Receive) -> AsyncIterator[None]:
    """Break the block off when the caller hangs up, with CallerGone. The body must have been read."""
    task, gone = asyncio.current_task(), False
    assert task is not None

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if gone and task.uncancel() == 0:
            raise CallerGone from None
        raise
    finally:
        watcher.cancel()


async def whole(call: SyncCall, request: Request, parts: Parts) -> bytes:
    """The engine's answer in one piece, or that of the same call which is under way already. Raises CallerGone."""
    sending = submit_params.sending(request.headers)
    async with while_there(request.receive):
        if sending is None:
            return await parts.gateway.complete(call)
        return await parts.resends.answer(call, sending)


async def streamed(request: Request, events: Events, render: Render, price: Price | None) -> StreamingResponse:
    """Events as they come, usage with its cost. What fails before the first one is raised, so that it has a status of its own."""
    async with while_there(request.receive):
        first = await anext(events, None)
    return _EventStream(first, events, lambda event: render(sse_frames.priced(event, price)))


class _EventStream(StreamingResponse):
    media_type = "text/event-stream"

    def __init__(self, first: SseEvent | None, events: Events, render: Render) -> None:
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(_rendered(first, events, render), headers=headers)
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with suppress(CallerGone):
                async with while_there(receive):
                    await self.stream_response(send)
        finally:
            await self._events.aclose()


async def _rendered(first: SseEvent | None, events: Events, render: Render) -> AsyncIterator[bytes]:
    """Ends in `[DONE]` or in its own last event. What broke off ends in an error, so that nobody takes it for whole."""
    last = first
    if first is not None and (frame := render(first)):
        yield frame
    async for event in events:
        last = event
        if frame := render(event):
            yield frame
    if last is None or not (last.error or last.ends):
        yield DONE
