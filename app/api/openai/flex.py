"""`service_tier: "flex"`: a synchronous call that waits in the queue for idle GPU time, as long as its caller holds the line.

A client gives up when it has read nothing for a while, and sends the call again. So blanks are sent before the answer, which
JSON allows; with the first of them the status is 200, and what goes wrong later stands in the body. A call that is sent again
all the same finds the one that was sent before.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from app import trace
from app.api import relaying
from app.api.deps import Parts
from app.api.openai.responses import sent_before
from app.batches import singles as single_requests
from app.batches.items import ItemError, ItemFacts, ItemRules
from app.batches.service import Order, rules_of
from app.batches.singles import Single
from app.engines.catalogue import Model
from app.engines.pricing import with_cost
from app.errors import BadInput, ExecutionFailed, NoCapacity, SlackwaterError, TimedOut
from app.queue.types import Kind
from app.tenants.service import Tenant

TIER = "flex"
BLANK_SECONDS = 1.0
SILENT_SECONDS = 1.5  # so long an answer may still have a status of its own
_LOOK_SECONDS = (0.02, 0.5)  # shortest and longest pause between two looks
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Asked:
    """One call: the engine's route, how its body is checked, the model, the body."""

    endpoint: str
    examine: Callable[[Any, ItemRules], ItemFacts]
    model: Model
    item: dict[str, Any]


async def wait(asked: Asked, request: Request, tenant: Tenant, parts: Parts) -> Response:
    """The answer, as soon as there is one. Raises BadInput, NoCapacity where the caller would rather not wait."""
    facts = _examined(asked)
    order = Order(
        tenant,
        asked.model,
        request.state.request_id,
        trace.parse(request.headers.get(trace.HEADER)),
        request.headers.get("x-session-affinity"),
        endpoint=asked.endpoint,
        kind=Kind.FLEX,
    )
    hurried = (asked.item.get("options") or {}).get("rejectIfBusy") is True
    request_id = await single_requests.submit(
        parts.database, parts.settings, order, asked.item, facts, repeated=sent_before(request), hurried=hurried
    )
    ended = asyncio.create_task(_ended(parts, tenant, request_id))
    try:
        async with relaying.while_there(request.receive):
            done, _ = await asyncio.wait({ended}, timeout=SILENT_SECONDS)
    except relaying.CallerGone:
        ended.cancel()
        raise
    if done:
        return Response(_answer(await ended, asked), media_type=_JSON)
    return StreamingResponse(_blanks_then(ended, asked), media_type=_JSON)


def _examined(asked: Asked) -> ItemFacts:
    if asked.item.get("stream"):
        raise BadInput(
            "stream: a flex call is answered in one piece; leave it out, or the service_tier", param="stream"
        )
    try:
        return asked.examine(asked.item, rules_of(asked.model, one_choice=False))
    except ItemError as error:
        raise BadInput(f"Bad input: {error}", param=error.field or None) from None


async def _ended(parts: Parts, tenant: Tenant, request_id: UUID) -> Single:
    """The request once it has come to its end."""
    pause = _LOOK_SECONDS[0]
    while True:
        why = await parts.polls.why(tenant.tenant_id, request_id)
        if why is None or why.status.finalized_at is not None:
            break
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LOOK_SECONDS[1])
    found = await single_requests.find(parts.database, parts.settings, tenant.tenant_id, request_id, Kind.FLEX)
    if found is None:
        raise ExecutionFailed("The request was removed while it waited")
    return found


async def _blanks_then(ended: "asyncio.Task[Single]", asked: Asked) -> AsyncIterator[bytes]:
    try:
        while not (await asyncio.wait({ended}, timeout=BLANK_SECONDS))[0]:
            yield b" \n"
        yield _answer(await ended, asked)
    except SlackwaterError as error:
        kind = "invalid_request_error" if error.status < 500 else "server_error"
        yield orjson.dumps({"error": {"message": error.message, "type": kind, "param": None, "code": error.reason}})
    finally:
        ended.cancel()


def _answer(single: Single, asked: Asked) -> bytes:
    """The engine's answer. Raises what became of the request where there is none."""
    result = single.result
    if result.ok and result.body is not None:
        answer = orjson.loads(result.body) | {"service_tier": TIER}
        return orjson.dumps(answer | {"usage": with_cost(answer["usage"], asked.model.price)})
    said: dict[str, Any] = (
        orjson.loads(result.body) if result.body else {"code": 5001, "message": "The request was cancelled"}
    )
    raised = {5006: BadInput, 3007: TimedOut, 3040: NoCapacity}.get(said["code"], ExecutionFailed)
    raise raised(said["message"])
