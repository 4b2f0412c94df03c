"""`POST …/ai/run/{model}`: one URL to submit a batch and to poll it, told apart by the body's keys.

The generic form `POST …/ai/run` takes the model's name in the body.
"""

import re
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from app.api import body
from app.api.deps import Caller, Parts, PartsDep
from app.api.envelope import success
from app.api.workers_ai import results
from app.batches import service as batches
from app.engines.catalogue import Model
from app.errors import BadInput, ModelUnknown, NotFound, SlackwaterError
from app.queue import reading
from app.storage.store import Store
from app.tenants.service import Tenant

router = APIRouter()

_TAG = re.compile(r"[A-Za-z0-9:\-./@]{1,50}")
_MOST_TAGS = 5
_LONGEST_KEY = 255
_WINDOW = re.compile(r"(\d{1,9})([smhd])")
_LONGEST_WINDOW = 90 * 86_400
_FALSE = ("", "false", "0", "no")


@router.post("/ai/run/{model:path}")
async def run(model: str, request: Request, tenant: Caller, parts: PartsDep) -> Response:
    """Submit with `requests`, poll with `request_id`."""
    model = model.rstrip("/")  # some clients end a base URL in a slash
    if body.content_type(request) == body.NDJSON:
        return await _submit_lines(model, request, tenant, parts)
    content = await body.read_json(request, parts.settings.json_body_mb)
    return await _dispatch(model, content, request, tenant, parts)


@router.post("/ai/run")
async def run_generic(request: Request, tenant: Caller, parts: PartsDep) -> Response:
    """The same with the model's name in the body; JSON only."""
    if body.content_type(request) == body.NDJSON:
        raise BadInput("Bad input: NDJSON has no room for the model's name; POST it to …/ai/run/{model}")
    content = await body.read_json(request, parts.settings.json_body_mb)
    model = content.pop("model", None)
    if model is None and "request_id" in content:
        model = ""
    if not isinstance(model, str):
        raise BadInput("model: must name the model, as a string")
    return await _dispatch(model, content, request, tenant, parts)


async def _dispatch(model: str, content: dict[str, Any], request: Request, tenant: Tenant, parts: Parts) -> Response:
    if "requests" in content and "request_id" in content:
        raise BadInput("Bad input: send requests to submit or request_id to poll, not both")
    if "request_id" in content:
        return await _poll(content["request_id"], tenant, parts)
    found = _resolve(model, parts)
    if "requests" not in content:
        raise _no_requests(request)
    request_id = await _submit_items(_order(found, request, tenant), content, parts)
    return _queued(request_id, model)


async def _submit_items(order: batches.Order, content: dict[str, Any], parts: Parts) -> UUID:
    items = content["requests"]
    if not isinstance(items, list):
        raise BadInput(f"requests: must be a list of items, got {type(items).__name__}")
    unknown = sorted(content.keys() - {"requests"})
    if unknown:
        raise BadInput(f"{unknown[0]}: does not belong beside requests; options stand inside each item")
    return await batches.submit_items(parts.database, parts.settings, order, items)


async def _submit_lines(name: str, request: Request, tenant: Tenant, parts: Parts) -> Response:
    order = _order(_resolve(name, parts), request, tenant)
    blocks = body.blocks(request, parts.settings.ndjson_body_mb)
    request_id = await batches.submit_lines(parts.database, parts.settings, order, blocks)
    return _queued(request_id, name)


async def _poll(request_id: Any, tenant: Tenant, parts: Parts) -> Response:
    missing = NotFound("No batch with this request_id in this account")
    try:
        parsed = UUID(request_id)
    except (ValueError, AttributeError, TypeError):
        raise missing from None
    status = await reading.status(parts.database, tenant.tenant_id, parsed)
    if status is None:
        raise missing
    if status.finalized_at is None:
        return success(results.pending(status, await reading.estimated(parts.database, status)))
    model = parts.catalogue.resolve(status.model)
    shape = model.shape if model else "openai"
    stream = results.render(
        status, reading.results(parts.database, status.batch_id, status.run, store=Store.of(parts.settings)), shape
    )
    code = results.http_status(status)
    headers = {} if code == 200 else {"x-should-retry": "false"}
    return StreamingResponse(stream, code, headers, media_type="application/json")


def _resolve(name: str, parts: Parts) -> Model:
    model = parts.catalogue.resolve(name)
    if model is None:
        known = ", ".join(sorted(parts.catalogue.models))
        raise ModelUnknown(f"No such model {name} or task. This installation has: {known}")
    return model


def _order(model: Model, request: Request, tenant: Tenant) -> batches.Order:
    """The submit's order. Raises when it did not ask to be queued, or the model cannot queue, or a tag is bad."""
    if not _wants_queue(request):
        raise BadInput("requests: a batch is queued; add ?queueRequest=true to the URL")
    if "async_queue" not in model.capabilities:
        raise SlackwaterError("This model does not support request queuing", status=400, code=8007)
    tags = tuple(tag for value in request.query_params.getlist("tags") for tag in value.split(",") if tag)
    if len(tags) > _MOST_TAGS or not all(_TAG.fullmatch(tag) for tag in tags):
        raise BadInput(
            f"tags: at most {_MOST_TAGS}, each of 1 to 50 letters, digits or : - . / @, got {','.join(tags)[:80]}"
        )
    headers = request.headers
    correlation = headers.get("cf-ai-req-id") or headers.get("x-request-id")
    return batches.Order(
        tenant, model, correlation, headers.get("x-session-affinity"), tags, _key(request), _deadline(request)
    )


def _deadline(request: Request) -> float | None:
    """`completion_window` in seconds: a number with s, m, h or d."""
    given = request.query_params.get("completion_window")
    if not given:
        return None
    parsed = _WINDOW.fullmatch(given)
    seconds = float(parsed[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[parsed[2]] if parsed else 0
    if not 1 <= seconds <= _LONGEST_WINDOW:
        raise BadInput(f"completion_window: must be like 90s, 30m, 24h or 7d and at most 90d, got {given[:40]}")
    return seconds


def _key(request: Request) -> str | None:
    """The Idempotency-Key, bare or as the quoted string of draft-ietf-httpapi-idempotency-key-header-07."""
    given = request.headers.get("idempotency-key")
    if given is None:
        return None
    key = given.strip().strip('"')
    if not 1 <= len(key) <= _LONGEST_KEY or not key.isprintable():
        raise BadInput(f"Idempotency-Key: must be 1 to {_LONGEST_KEY} printable characters")
    return key


def _wants_queue(request: Request) -> bool:
    return request.query_params.get("queueRequest", "").lower() not in _FALSE


def _no_requests(request: Request) -> SlackwaterError:
    if _wants_queue(request):
        return BadInput('Bad input: queueRequest takes {"requests": [item, …]}; wrap the single request in that list')
    message = 'Synchronous inference is not served yet; submit {"requests": […]} with ?queueRequest=true'
    return SlackwaterError(message, status=501, code=5006)


def _queued(request_id: UUID, asked: str) -> Response:
    return success({"status": "queued", "request_id": str(request_id), "model": asked})
