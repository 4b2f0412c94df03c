"""A synchronous `…/ai/run`: the engine's answer as Workers AI's `result`, or as its frames."""

import asyncio
from functools import partial
from typing import Any

from fastapi import Request, Response

from app.api import fields, relaying
from app.api.body import JSON
from app.api.deps import Parts
from app.batches.service import WORK
from app.engines import embeddings
from app.engines.catalogue import Model
from app.engines.echo import echo
from app.engines.pricing import priced
from app.engines.requests import asks_for_response
from app.engines.shapes import as_result
from app.gateway import frames
from app.tenants.service import Tenant


async def answer(model: Model, item: dict[str, Any], request: Request, tenant: Tenant, parts: Parts) -> Response:
    """Run one request while its caller waits. Raises SlackwaterError."""
    fields.check(request, item)
    way = relaying.Way(*WORK[model.task], open_ended=False)
    call, facts = await relaying.prepare(model, item, request, tenant, parts, way)
    if item.get("stream"):
        return await relaying.streamed(request, parts.gateway.stream(call), _render(model, item), model.price)
    body = await relaying.whole(call, request, parts)
    if model.task == "text-embeddings":
        result = await asyncio.to_thread(embeddings.as_result, body, item, model.pooling, model.price)
    elif asks_for_response(item):
        result = priced(body, model.price, echo(item))
    else:
        result = as_result(body, model.shape, model.price, wants_json=facts.wants_json)
    return Response(b'{"result":' + result + b',"success":true,"errors":[],"messages":[]}', media_type=JSON)


def _render(model: Model, item: dict[str, Any]) -> relaying.Render:
    if asks_for_response(item):
        said = echo(item)
        return lambda event: frames.run_responses(frames.echoed(event, said))
    return frames.native if model.shape == "native" else partial(frames.openai, usage=True)
