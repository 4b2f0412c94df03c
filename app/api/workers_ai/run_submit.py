"""A submit to `…/ai/run?queueRequest=true`: the items in `requests` or as NDJSON become one batch."""

import json
import re
from typing import Any
from uuid import UUID

from fastapi import Request, Response

from app import labels
from app.api import body, boolean_params, policy_header, request_parsing, submit_params, unknown_fields
from app.api.deps import Parts
from app.api.envelope import success
from app.api.header_texts import HeaderTexts
from app.api.unknown_fields import ItemFields
from app.batches import submit as batches
from app.batches.validation import not_json, strict_json
from app.engines.catalogue import Model
from app.errors import BadInput, NotQueueable
from app.queue.types import Kind
from app.tenants.service import Tenant

METADATA = "cf-aig-metadata"
_QUEUE = "queueRequest"
_QUERY = frozenset([_QUEUE, "tags", "tag", "completion_window", "strict"])


async def items(name: str, content: dict[str, Any], request: Request, tenant: Tenant, parts: Parts) -> Response:
    """Queue the items of a JSON body. Raises BadInput naming the item and its field."""
    fields = ItemFields(request)
    order = _order(parts.model(name), request, tenant, parts, fields)
    given = content["requests"]
    if not isinstance(given, list):
        raise BadInput(f"requests: must be a list of items, got {not_json.kind(given)}")
    unknown = sorted(content.keys() - {"requests"})
    if unknown:
        place = "the query of the URL" if unknown[0] in _QUERY else "each item"
        raise BadInput(f"{unknown[0]}: must not be sent beside requests; put it into {place}")
    request_id = await batches.submit_items(parts.database, parts.settings, order, given)
    return _queued(request, request_id, name, order, fields)


async def lines(name: str, request: Request, tenant: Tenant, parts: Parts) -> Response:
    """Queue the items of an NDJSON body while it arrives. Raises BadInput naming the line."""
    fields = ItemFields(request)
    order = _order(parts.model(name), request, tenant, parts, fields)
    blocks = body.blocks(request, parts.settings.ndjson_body_mb)
    request_id = await batches.submit_lines(parts.database, parts.settings, order, blocks)
    return _queued(request, request_id, name, order, fields)


def check_not_queued(model: Model, request: Request) -> None:
    """Raise BadInput for a synchronous body whose query asks to queue it."""
    if _wants_queue(request):
        _check_queue(model)
        raise BadInput('Bad input: queueRequest takes {"requests": [item, …]}; wrap the single request in that list')


def _order(model: Model, request: Request, tenant: Tenant, parts: Parts, fields: ItemFields) -> batches.Order:
    """The order of a submit. Raises when its query does not ask to queue it, or the model cannot queue, or a label is invalid."""
    if not _wants_queue(request):
        raise BadInput("requests: a batch is queued; add ?queueRequest=true to the URL")
    _check_queue(model)
    unknown_fields.check(request, request.query_params, _QUERY, noun="query parameter")
    key = submit_params.key_of(request.headers)
    labels = request_parsing.labels_of(
        request, tenant, tags=_tags(request), metadata=_metadata(request), idempotency_key=key
    )
    deadline = _deadline(request)
    admission = parts.admission.begin(tenant, labels.spend, Kind.BATCH, parts.catalogue, deadline, stored=labels.stored)
    return batches.Order(tenant, model, labels, deadline_seconds=deadline, admission=admission, look=fields.look)


def _wants_queue(request: Request) -> bool:
    return boolean_params.parse(request.query_params.get(_QUEUE), _QUEUE)


def _check_queue(model: Model) -> None:
    if "async_queue" not in model.capabilities:
        raise NotQueueable("This model does not support request queuing")


def _tags(request: Request) -> tuple[str, ...]:
    """The tags in the query, as `tags` or as `tag`. Raises BadInput."""
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
        raise BadInput(
            f"completion_window: must be {submit_params.WINDOWS}, or left out for no deadline; got {given[:40]}"
        )
    return seconds


def _metadata(request: Request) -> dict[str, str] | None:
    """The metadata in the header that Cloudflare's AI Gateway uses for it: one flat JSON object."""
    given = HeaderTexts(request.headers).get(METADATA)
    if given is None:
        return None
    try:
        strict_json.loads(given.encode())
    except strict_json.JsonError as error:
        raise BadInput(f"{METADATA}: {error}", param=METADATA) from None
    pairs = json.loads(given, parse_int=str, parse_float=str)  # a number keeps its digits
    if not isinstance(pairs, dict) or not all(isinstance(value, str | bool) for value in pairs.values()):
        message = f'{METADATA}: must be a JSON object of strings, numbers and booleans, like {{"team": "search"}}'
        raise BadInput(message, param=METADATA)
    texts = {key: value if isinstance(value, str) else str(value).lower() for key, value in pairs.items()}
    labels.check_metadata(texts, METADATA)
    return texts


def _queued(request: Request, request_id: UUID, model_name: str, order: batches.Order, fields: ItemFields) -> Response:
    outcome = order.admission.outcome
    if outcome.rules:
        model_name = outcome.model or model_name
        policy_header.add(request, order.admission, model_name)
    fields.warn()
    messages = [{"code": BadInput.code, "message": each} for each in fields.warnings]
    return success({"status": "queued", "request_id": str(request_id), "model": model_name}, messages=messages)
