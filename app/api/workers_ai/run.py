"""`POST …/ai/run/{model}`: one URL to submit a batch, to poll it, and to run one request. The keys of the body decide which.

The generic form `POST …/ai/run` takes the model's name in the body.
"""

from typing import Any

from fastapi import APIRouter, Request, Response

from app.api import body, submit_metrics
from app.api.deps import Caller, Parts, PartsDep
from app.api.fast_route import FastRoute
from app.api.workers_ai import run_poll, run_submit, run_sync
from app.errors import BadInput
from app.tenants.service import Tenant

router = APIRouter(route_class=FastRoute)


@router.post("/ai/run/{model:path}")
async def run(model: str, request: Request, tenant: Caller, parts: PartsDep) -> Response:
    """Submit with `requests`, poll with `request_id`; any other body is one request, answered synchronously."""
    model = model.rstrip("/")  # some clients end a base URL in a slash
    if body.content_type(request) == body.NDJSON:
        with submit_metrics.counted():
            return await run_submit.lines(model, request, tenant, parts)
    content = await body.read_json(request, parts.settings.json_body_mb)
    return await _dispatch(model, content, request, tenant, parts)


@router.post("/ai/run")
async def run_generic(request: Request, tenant: Caller, parts: PartsDep) -> Response:
    """The same with the model's name in the body; JSON only."""
    if body.content_type(request) == body.NDJSON:
        raise BadInput("Bad input: NDJSON has no place for the model's name; POST it to …/ai/run/{model}")
    content = await body.read_json(request, parts.settings.json_body_mb)
    model = content.pop("model", None)
    if model is None and "request_id" in content:
        model = ""
    if not isinstance(model, str):
        raise BadInput(f"model: {'is missing' if model is None else 'must be a string'}")
    return await _dispatch(model, content, request, tenant, parts)


async def _dispatch(name: str, content: dict[str, Any], request: Request, tenant: Tenant, parts: Parts) -> Response:
    if "requests" in content and "request_id" in content:
        raise BadInput("Bad input: send requests to submit or request_id to poll, not both")
    if "request_id" in content:
        return await run_poll.poll(content["request_id"], tenant, parts)
    if "requests" in content:
        with submit_metrics.counted():
            return await run_submit.items(name, content, request, tenant, parts)
    model = parts.model(name)
    run_submit.check_not_queued(model, request)
    return await run_sync.answer(model, content, request, tenant, parts)
