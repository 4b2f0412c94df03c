"""The common part of the synchronous routes: check a request, run it until its client disconnects, answer with events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app import off_loop
from app.admission.admission import Admission, Admitted
from app.api import policy_header, rate_limits, request_parsing, submit_params
from app.api.deps import Parts
from app.batches.request_labels import RequestLabels
from app.batches.validation.text_generation import Examine, ItemFacts, examine
from app.budgets import rules as budget_rules
from app.budgets.calls import CallSize
from app.engines.catalogue import Model, Task
from app.engines.requests import CHAT
from app.errors import CallerGone, NoCapacity
from app.gateway import restored_events, sse_frames, withheld_events
from app.gateway.relay import SyncCall
from app.gateway.sse_frames import DONE, SseEvent
from app.metering import families
from app.metering.lines import SYNC, LineParts, parts_of
from app.metering.spend_labels import SpendLabels
from app.policy.redaction import restored_body
from app.policy.tool_calls import CallJudge, withheld_body
from app.policy.tool_terms import NO_TERMS
from app.policy.vaults import NO_VALUES
from app.tenants.service import Tenant

Render = Callable[[SseEvent], bytes]
Events = AsyncGenerator[SseEvent, None]
T = TypeVar("T")


@dataclass(frozen=True)
class EngineRoute:
    """The engine's route for a request, how its body is checked, and the task that its model must have.

    `open_ended`: an answer without a limit may use the rest of the context window, as on OpenAI's routes.
    """

    endpoint: str = CHAT
    examine: Examine = examine
    task: Task = "text-generation"
    open_ended: bool = True


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A synchronous request that may run. `calls`: it, and after it the same request for the models of its fallback chain.

    `values`: by placeholder, what its caller may read in the answer. `placeholders`: the same, whoever may read it. `tools`:
    judges the calls that the answer has; None: all may pass.
    """

    calls: Sequence[SyncCall]
    admission: Admission
    facts: ItemFacts
    values: Mapping[str, str] = field(default_factory=lambda: NO_VALUES)
    tools: CallJudge | None = None
    placeholders: Mapping[str, str] = field(default_factory=lambda: NO_VALUES)


async def prepare(
    model: Model,
    item: dict[str, Any],
    request: Request,
    tenant: Tenant,
    parts: Parts,
    route: EngineRoute,
    *,
    affinity: str | None = None,
    values: Mapping[str, str] = NO_VALUES,
) -> "PreparedCall":
    """The call for the gateway, as it was admitted. `affinity`: names its session, before what its headers say. `values`: of
    placeholders that it has from before. Raises BadInput naming the field, PolicyDenied, RateLimited.
    """
    usual = parts.lengths.of(tenant.tenant_id) if route.open_ended else None
    labels = request_parsing.labels_of(request, tenant, item=item)
    labels = labels if affinity is None else replace(labels, session=affinity)
    admission = parts.admission.begin(tenant, labels.spend, SYNC, parts.catalogue, stored=labels.stored)
    examine = request_parsing.examined_by(route.examine, usual)
    admitted = await request_parsing.admit(admission, model, item, route.endpoint, examine, values)
    await rate_limits.count(request, tenant, parts, admitted.facts.est_tokens)
    labels = request_parsing.thinned(labels, parts.settings.trace_sync_share)
    calls = [_call(admitted, tenant, labels, parts, route)]
    others = (
        await off_loop.done(admitted.item, admission.others, admitted, examine) if admitted.decision.fallback else ()
    )
    for other in others:
        calls.append(
            _call(other, tenant, replace(labels, origin=labels.origin and labels.origin.again()), parts, route)
        )
    readable = admitted.values if tenant.scope.restore else NO_VALUES
    return PreparedCall(
        calls, admission, admitted.facts, readable, _judge(admitted, tenant, parts), placeholders=admitted.values
    )


def _judge(admitted: Admitted[ItemFacts], tenant: Tenant, parts: Parts) -> CallJudge | None:
    terms = admitted.decision.tools
    return None if terms is NO_TERMS else CallJudge([terms], partial(parts.admission.withheld, tenant.account_id))


def _call(
    admitted: Admitted[ItemFacts], tenant: Tenant, labels: RequestLabels, parts: Parts, route: EngineRoute
) -> SyncCall:
    model, facts = admitted.model, admitted.facts
    return SyncCall(
        model,
        admitted.item,
        tenant.tenant_id,
        facts.est_tokens - facts.answer_tokens,
        facts.most_tokens,
        labels.session or facts.affinity,
        route.endpoint,
        rejects_if_busy(admitted.item),
        route.open_ended,
        labels.traceparent,
        _line(model, tenant, labels.spend, facts, parts, route.endpoint),
        _size(model, admitted.item, facts),
        labels.origin,
    )


def _size(model: Model, item: dict[str, Any], facts: ItemFacts) -> CallSize:
    """What its budgets reserve for a valid request."""
    prompt, most = facts.est_tokens - facts.answer_tokens, facts.most_tokens
    expected = budget_rules.expected_answer(facts.answer_tokens, most)
    if model.task == "text-embeddings" or isinstance(item.get("prompt"), list):  # a window for each of several texts
        return CallSize(prompt, expected, most, item)
    return CallSize(prompt, expected, most, item, model.context_window, item.get("n") or 1)


def _line(
    model: Model, tenant: Tenant, labels: SpendLabels, facts: ItemFacts, parts: Parts, endpoint: str
) -> LineParts:
    """The line of a request, with the family of its prompt unless a label names one."""
    if labels.family == families.NONE:
        known = families.of(parts.secret_key)
        labels = replace(labels, family=known.name(tenant.tenant_id, labels.workflow, facts.beginning))
    return parts_of(tenant.tenant_id, tenant.key_id, labels, model.name, SYNC, model.price, endpoint)


def rejects_if_busy(item: dict[str, Any]) -> bool:
    """Whether a valid request is to be refused rather than wait for a place in an engine."""
    return (item.get("options") or {}).get("rejectIfBusy") is True


def includes_usage(item: Mapping[str, Any]) -> bool:
    """Whether a valid request asks for the usage at the end of its stream, as `stream_options` of OpenAI's routes."""
    options = item.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


@asynccontextmanager
async def while_connected(receive: Receive) -> AsyncIterator[None]:
    """Cancel the block when the client disconnects; it then raises CallerGone. The body must have been read."""
    task, disconnected = asyncio.current_task(), False
    assert task is not None

    async def watch() -> None:
        nonlocal disconnected
        while (await receive())["type"] != "http.disconnect":
            pass
        disconnected = True
        task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if disconnected and task.uncancel() == 0:
            raise CallerGone from None
        raise
    finally:
        watcher.cancel()


async def whole(prepared: PreparedCall, request: Request, parts: Parts) -> tuple[bytes, SyncCall]:
    """The engine's answer in one piece, and the call that it answers. A repeated call gets the answer of the call that runs.

    Raises CallerGone.
    """
    sending = submit_params.sending(request.headers)

    async def answer(call: SyncCall) -> bytes:
        if sending is None:
            return await parts.gateway.complete(call)
        return await parts.resends.answer(call, sending)

    async with while_connected(request.receive):
        body, call = await _first_with_room(prepared, request, answer)
    if prepared.values:
        restored = partial(restored_body, of_answer=True)
        body = await off_loop.done(body, restored, body, prepared.values)
    if prepared.tools is not None:
        body = await off_loop.done(body, withheld_body, body, prepared.tools)
    return body, call


async def _first_with_room(
    prepared: PreparedCall, request: Request, begin: Callable[[SyncCall], Awaitable[T]]
) -> tuple[T, SyncCall]:
    """What `begin` returns for the first of the calls for which an engine has room. Raises NoCapacity if none has."""
    for call in prepared.calls[:-1]:
        with suppress(NoCapacity):
            return _named(await begin(call), call, prepared, request)
    last = prepared.calls[-1]
    return _named(await begin(last), last, prepared, request)


def _named(begun: T, call: SyncCall, prepared: PreparedCall, request: Request) -> tuple[T, SyncCall]:
    policy_header.add(request, prepared.admission, call.model.name)
    return begun, call


async def streamed(
    prepared: PreparedCall,
    request: Request,
    parts: Parts,
    render_of: Callable[[SyncCall], Render],
    through: Callable[[SyncCall, Events], Events] = lambda call, events: events,
) -> StreamingResponse:
    """Events as they arrive, usage with its cost. An error before the first event is raised, so it gets its own HTTP status.
    `through`: what the events of a call pass.
    """

    async def begin(call: SyncCall) -> tuple[SseEvent | None, Events]:
        events = parts.gateway.stream(call)
        events = restored_events.of(events, prepared.values) if prepared.values else events
        events = events if prepared.tools is None else withheld_events.of(events, prepared.tools)
        events = through(call, events)
        return await anext(events, None), events

    async with while_connected(request.receive):
        (first, events), call = await _first_with_room(prepared, request, begin)
    render, price = render_of(call), call.model.price
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
                async with while_connected(receive):
                    await self.stream_response(send)
        finally:
            await self._events.aclose()


async def _rendered(first: SseEvent | None, events: Events, render: Render) -> AsyncIterator[bytes]:
    """The frames of a stream, which ends with `[DONE]` or with its own last event. An incomplete stream ends with an error."""
    last = first
    if first is not None and (frame := render(first)):
        yield frame
    async for event in events:
        last = event
        if frame := render(event):
            yield frame
    if last is None or not (last.error or last.ends):
        yield DONE
