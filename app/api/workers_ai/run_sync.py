"""A synchronous call of `…/ai/run`: the engine's answer as Workers AI's `result`, or as its stream of events."""

import asyncio
from collections.abc import Mapping
from typing import Any

from fastapi import Request, Response

from app.api import sync_requests, unknown_fields
from app.api.body import JSON
from app.api.deps import Parts
from app.batches.submit import ENGINE_ROUTES
from app.engines import embeddings
from app.engines.catalogue import Model
from app.engines.native_response import as_result
from app.engines.pricing import priced
from app.engines.request_echo import echo
from app.engines.requests import is_response_request
from app.gateway import sse_frames
from app.tenants.service import Tenant


async def answer(model: Model, item: dict[str, Any], request: Request, tenant: Tenant, parts: Parts) -> Response:
    """Run one request while its client waits. Raises SlackwaterError."""
    unknown_fields.check(request, item)
    route = sync_requests.EngineRoute(*ENGINE_ROUTES[model.task], model.task, open_ended=False)
    prepared = await sync_requests.prepare(model, item, request, tenant, parts, route)
    if item.get("stream"):
        return await sync_requests.streamed(prepared, request, parts, lambda call: _render(model, call.item))
    body, call = await sync_requests.whole(prepared, request, parts)
    price = call.model.price
    if model.task == "text-embeddings":
        result = await asyncio.to_thread(embeddings.as_result, body, item, call.model.pooling, price)
    elif is_response_request(item):
        result = priced(body, price, echo(call.item))
    else:  # in the form of the model that was asked for, whichever answers
        result = as_result(body, model.shape, price, wants_json=prepared.facts.wants_json)
    return Response(b'{"result":' + result + b',"success":true,"errors":[],"messages":[]}', media_type=JSON)


def _render(model: Model, item: Mapping[str, Any]) -> sync_requests.Render:
    if is_response_request(item):
        repeated = echo(item)
        return lambda event: sse_frames.run_responses(sse_frames.echoed(event, repeated))
    return sse_frames.native if model.shape == "native" else sse_frames.run_openai
