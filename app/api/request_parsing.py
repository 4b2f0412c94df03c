"""From an HTTP request to its labels and to the order of what it queues. Every route that runs or queues a request uses this."""

from collections.abc import Mapping
from typing import Any

from fastapi import Request

from app import trace_context
from app.batches.request_labels import RequestLabels
from app.batches.submit import Order
from app.batches.validation.text_generation import Examine, ItemError, ItemFacts, ItemRules
from app.engines.catalogue import Model
from app.errors import BadInput
from app.metering import spend_labels
from app.queue.types import Kind
from app.tenants.service import Tenant

MISSING = "missing_required_parameter"  # OpenAI's code
_SESSION_HEADERS = ("x-session-affinity", "x-session-id")  # Cloudflare's, and the name that others use


def labels_of(
    request: Request,
    *,
    tags: tuple[str, ...] = (),
    metadata: Mapping[str, str] | None = None,
    idempotency_key: str | None = None,
) -> RequestLabels:
    """The labels of a request: those in its headers, and those that its route has read elsewhere. Raises BadInput."""
    headers = request.headers
    session = next((headers[name] for name in _SESSION_HEADERS if headers.get(name)), None)
    traceparent = trace_context.parse(headers.get(trace_context.HEADER))
    spend = spend_labels.read(headers, metadata, tags)
    return RequestLabels(request.state.request_id, traceparent, session, tags, metadata, idempotency_key, spend)


def single_order(
    request: Request, tenant: Tenant, model: Model, endpoint: str, kind: Kind, *, idempotency_key: str | None = None
) -> Order:
    """The order of one request that waits in the queue on OpenAI's routes."""
    labels = labels_of(request, idempotency_key=idempotency_key)
    return Order(tenant, model, labels, endpoint=endpoint, kind=kind, open_ended=True)


def checked(examine: Examine, item: dict[str, Any], rules: ItemRules) -> ItemFacts:
    """The facts of a request that is valid. Raises BadInput naming the field."""
    try:
        return examine(item, rules)
    except ItemError as error:
        missing = error.field and "." not in error.field and item.get(error.field) is None
        reason = MISSING if missing else None
        raise BadInput(f"Bad input: {error}", param=error.field or None, reason=reason) from None
