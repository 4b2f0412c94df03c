"""`POST …/ai/run/{model}`: one URL to submit a batch, to poll it, and to run one request, told apart by the body's keys.

The generic form `POST …/ai/run` takes the model's name in the body.
"""

import re
from typing import Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from app import labels, trace_context
from app.api import body, submit_params, unknown_fields
from app.api.deps import Caller, Parts, PartsDep
from app.api.envelope import success
from app.api.fast_route import FastRoute
from app.api.workers_ai import batch_views, results, synchronous
from app.api.workers_ai.batch_views import MISSING
from app.batches import submit as batches
from app.engines.catalogue import Model
from app.errors import BadInput, NotFound, SlackwaterError
from app.queue import failures
from app.queue.reads import BatchStatus
from app.states import BatchState
from app.tenants.service import Tenant

router = APIRouter(route_class=FastRoute)

METADATA = "cf-aig-metadata"
_QUEUE = "queueRequest"
_QUERY = frozenset([_QUEUE, "tags", "tag", "completion_window", "strict"])
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


@router.post("/ai/run/{model:path}")
async def run(model: str, request: Request, tenant: Caller, parts: PartsDep) -> Response:
    """Submit with `requests`, poll with `request_id`; anything else is a request whose caller waits."""
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
    found = parts.model(model)
    if "requests" not in content:
        if _wants_queue(request):
            _check_queue(found)
            raise BadInput(
                'Bad input: queueRequest takes {"requests": [item, …]}; wrap the single request in that list'
            )
        return await synchronous.answer(found, content, request, tenant, parts)
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
    order = _order(parts.model(name), request, tenant)
    blocks = body.blocks(request, parts.settings.ndjson_body_mb)
    request_id = await batches.submit_lines(parts.database, parts.settings, order, blocks)
    return _queued(request_id, name)


async def _poll(request_id: Any, tenant: Tenant, parts: Parts) -> Response:
    parsed = submit_params.batch_id(request_id)
    if parsed is None:
        raise NotFound(MISSING)
    found = await parts.polls.why(tenant.tenant_id, parsed)
    if found is None:
        raise await batch_views.not_run(parsed, tenant, parts)
    if found.status.finalized_at is None:
        return success(results.pending(found))
    return await _final(found.status, parts)


async def _final(status: BatchStatus, parts: Parts) -> Response:
    all_refused = False
    if status.state == BatchState.FAILED:
        async with parts.database.relaxed() as conn:
            all_refused = await failures.all_refused(conn, status.batch_id, status.run)
    code = results.http_status(status, all_refused=all_refused)
    stream = results.render(status, batch_views.pages(status, parts), parts.catalogue, code)
    headers = {} if code == 200 else {"x-should-retry": "false"}
    return StreamingResponse(stream, code, headers, media_type="application/json")


def _order(model: Model, request: Request, tenant: Tenant) -> batches.Order:
    """The submit's order. Raises when it did not ask to be queued, or the model cannot queue, or a tag is bad."""
    if not _wants_queue(request):
        raise BadInput("requests: a batch is queued; add ?queueRequest=true to the URL")
    _check_queue(model)
    unknown_fields.check(request, request.query_params, _QUERY, called="query parameter")
    headers = request.headers
    session = headers.get("x-session-affinity") or headers.get("x-session-id")
    traceparent = trace_context.parse(headers.get(trace_context.HEADER))
    names = request.state.request_id, traceparent, session
    key = submit_params.idempotency_key(headers.get("idempotency-key"), "Idempotency-Key")
    return batches.Order(tenant, model, *names, _tags(request), _metadata(request), key, _deadline(request))


def _check_queue(model: Model) -> None:
    if "async_queue" not in model.capabilities:
        raise SlackwaterError("This model does not support request queuing", status=400, code=8007)


def _tags(request: Request) -> tuple[str, ...]:
    """Those of `tags`, and of `tag`, which is the same. Raises BadInput."""
    query = request.query_params
    values = [*query.getlist("tags"), *query.getlist("tag")]
    tags = tuple(tag for value in values for tag in value.split(",") if tag)
    if len(tags) > labels.MOST_TAGS or not all(re.fullmatch(submit_params.TAG, tag) for tag in tags):
        raise BadInput(
            f"tags: at most {labels.MOST_TAGS}, each of 1 to 50 ASCII letters, digits or : - . / @, got {','.join(tags)[:80]}"
        )
    return tags


def _deadline(request: Request) -> float | None:
    """`completion_window` in seconds."""
    given = request.query_params.get("completion_window")
    if not given:
        return None
    seconds = submit_params.window_seconds(given)
    if seconds is None:
        raise BadInput(f"completion_window: must be {submit_params.WINDOWS}, got {given[:40]}")
    return seconds


def _metadata(request: Request) -> dict[str, str] | None:
    """The pairs of the header in which callers of Cloudflare's AI Gateway name them: one flat JSON object."""
    given = request.headers.get(METADATA)
    if given is None:
        return None
    try:
        pairs = orjson.loads(given)
    except orjson.JSONDecodeError:
        pairs = None
    if not isinstance(pairs, dict) or not all(isinstance(value, str | int | float | bool) for value in pairs.values()):
        raise BadInput(f'{METADATA}: must be a JSON object of texts, numbers and booleans, like {{"team": "search"}}')
    texts = {key: value if isinstance(value, str) else orjson.dumps(value).decode() for key, value in pairs.items()}
    labels.check_metadata(texts, METADATA)
    return texts


def _wants_queue(request: Request) -> bool:
    """Whether the query asks to be queued. Raises BadInput for a value that is neither yes nor no."""
    given = request.query_params.get(_QUEUE, _FALSE[0])
    if given.lower() in _TRUE:
        return True
    if given.lower() not in _FALSE:
        raise BadInput(f"{_QUEUE}: must be {', '.join(_TRUE)} or {', '.join(_FALSE)}, got {given[:40]!r}", param=_QUEUE)
    return False


def _queued(request_id: UUID, asked: str) -> Response:
    return success({"status": "queued", "request_id": str(request_id), "model": asked})
