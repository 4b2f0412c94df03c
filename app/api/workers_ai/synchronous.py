"""A synchronous `…/ai/run`: the engine's answer as Workers AI's `result`, or as its frames."""

import asyncio
from functools import partial
from typing import Any

from fastapi import Request, Response

from app.api import relaying
from app.api.body import JSON
from app.api.deps import Parts
from app.batches.service import WORK
from app.engines import embeddings
from app.engines.catalogue import Model
from app.engines.shapes import as_result
from app.gateway import frames
from app.tenants.service import Tenant


async def answer(model: Model, item: dict[str, Any], request: Request, tenant: Tenant, parts: Parts) -> Response:
    """Run one request while its caller waits. Raises SlackwaterError."""
    way = relaying.Way(*WORK[model.task], one_choice=model.shape == "native")
    call, facts = await relaying.prepare(model, item, request, tenant, parts, way)
    if item.get("stream"):
        render = frames.native if model.shape == "native" else partial(frames.openai, usage=True)
        return await relaying.streamed(request, parts.gateway.stream(call), render, model.price)
    async with relaying.while_there(request.receive):
        body = await parts.gateway.complete(call)
    if model.task == "text-embeddings":
        result = await asyncio.to_thread(embeddings.as_result, body, item, model.pooling, model.price)
    else:
        result = as_result(body, model.shape, model.price, wants_json=facts.wants_json)
    return Response(b'{"result":' + result + b',"success":true,"errors":[],"messages":[]}', media_type=JSON)
