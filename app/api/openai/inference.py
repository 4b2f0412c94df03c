"""OpenAI's inference routes, under `/v1` and under the account as at Workers AI: bodies and events without the envelope.

The engine gets the body as it is, without the fields that only the operator may set. Errors have OpenAI's form and the
envelope's.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response

from app import clock
from app.api import body, sync_requests, unknown_fields
from app.api.deps import KeyHolder, Parts, PartsDep
from app.api.fast_route import FastRoute
from app.api.openai import flex, queued_turns, turns
from app.api.openai.flex_call import FlexRequest
from app.api.sync_requests import EngineRoute
from app.batches.validation import openai
from app.batches.validation.fields import show
from app.engines.pricing import priced
from app.engines.rate_card import Work
from app.engines.request_echo import FLEX
from app.engines.requests import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES
from app.errors import BadInput, ModelUnknown
from app.gateway import sse_frames
from app.openai_codes import OpenAICode
from app.tenants.service import Tenant
from workers.engine.private_fields import ENGINE_PRIVATE_FIELDS

router = APIRouter(route_class=FastRoute)


_CHAT = EngineRoute(CHAT, openai.chat)
_COMPLETIONS = EngineRoute(COMPLETIONS, openai.completion)
_EMBEDDINGS = EngineRoute(EMBEDDINGS, openai.embedding, "text-embeddings")
_RESPONSES = EngineRoute(RESPONSES, openai.response)


@router.post("/chat/completions")
async def chat(request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """One chat completion, whole or streamed."""
    return await _answer(_CHAT, request, tenant, parts)


@router.post("/completions")
async def complete(request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """One text completion, whole or streamed."""
    return await _answer(_COMPLETIONS, request, tenant, parts)


@router.post("/embeddings")
async def embed(request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Vectors of one or several texts."""
    return await _answer(_EMBEDDINGS, request, tenant, parts)


@router.post("/responses")
async def respond(request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """One response, whole or streamed, stored unless `store` is false. With `background: true` it is queued.

    `conversation` and `previous_response_id` name what it continues.
    """
    return await _answer(_RESPONSES, request, tenant, parts)


async def _answer(route: EngineRoute, request: Request, tenant: Tenant, parts: Parts) -> Response:
    body.content_type(request, body.JSON)
    given = await body.read_json(request, parts.settings.json_body_mb)
    unknown_fields.check(request, given)
    item = {name: value for name, value in given.items() if name not in ENGINE_PRIVATE_FIELDS}
    if not isinstance(item.get("model"), str):
        if (name := item.get("model")) is None:
            raise BadInput("model: is missing", param="model", reason=OpenAICode.MISSING)
        said = f"model: must be a string, got {show(name)}"
        raise BadInput(said, param="model", reason=OpenAICode.INVALID_TYPE)
    model = parts.model(item["model"])
    if model.task != route.task:
        raise ModelUnknown(f"The model {item['model']} does {model.task}; this route does {route.task}")
    if not isinstance(item.get("background") or False, bool):
        raise BadInput("background: must be true or false", param="background")
    if route is _RESPONSES and item.get("background"):
        return await queued_turns.create(model, item, request, tenant, parts)
    if item.get("service_tier") == FLEX and route in (_CHAT, _RESPONSES):
        turns.refuse_flex(item)
        return await flex.wait(FlexRequest(route, model.priced(Work.FLEX, clock.now()), item), request, tenant, parts)
    if route is _RESPONSES:
        return await turns.respond(route, model, item, request, tenant, parts)
    prepared = await sync_requests.prepare(model, item, request, tenant, parts, route)
    if item.get("stream"):
        return await sync_requests.streamed(prepared, request, parts, lambda call: _render(call.item))
    answer, call = await sync_requests.whole(prepared, request, parts)
    return Response(priced(answer, call.model.price), media_type=body.JSON)


def _render(item: Mapping[str, Any]) -> sync_requests.Render:
    return partial(sse_frames.openai, usage=sync_requests.includes_usage(item))
