"""From an HTTP request to its labels and to the order of what it queues. Every route that runs or queues a request uses this."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from fastapi import Request

from app import clock, off_loop, trace_context
from app.admission import control
from app.admission.admission import Admission, Admitted
from app.api import policy_header, response_headers
from app.api.deps import Parts
from app.api.header_texts import HeaderTexts
from app.batches.request_labels import RequestLabels
from app.batches.submit import Order, rules_of
from app.batches.validation.text_generation import Examine, ItemError, ItemFacts
from app.engines.catalogue import Model
from app.errors import BadInput
from app.metering import spend_labels
from app.policy.vaults import NO_VALUES
from app.queue.answer_lengths import UsualLength
from app.queue.types import Kind
from app.tenants.service import Tenant
from app.tracing import recorder, sampling
from app.tracing.span import Origin

CheckItem = Callable[[Model, dict[str, Any]], ItemFacts]

_SESSION_HEADERS = ("x-session-affinity", "x-session-id")  # Cloudflare's, and the name that others use


def labels_of(
    request: Request,
    tenant: Tenant,
    *,
    tags: tuple[str, ...] = (),
    metadata: Mapping[str, str] | None = None,
    idempotency_key: str | None = None,
    item: Mapping[str, Any] = MappingProxyType({}),
) -> RequestLabels:
    """The labels of a request: those in its headers, and those that its route has read elsewhere. Raises BadInput.

    `item`: the body of a single request, whose own `metadata` may name its workflow, too.
    """
    headers = HeaderTexts(request.headers)
    session = next((headers[name] for name in _SESSION_HEADERS if headers.get(name)), None)
    traceparent, origin = _trace(request)
    own = item.get("metadata")
    named = own if metadata is None and isinstance(own, Mapping) else metadata
    spend = control.labels_of(tenant, headers, named, tags)
    texts = [text for text in (named or {}).values() if isinstance(text, str)]
    return RequestLabels(
        request.state.request_id,
        traceparent,
        session,
        tags,
        metadata,
        idempotency_key,
        spend,
        origin,
        (*texts, headers.get(spend_labels.GATEWAY_METADATA, "")),
    )


def thinned(labels: RequestLabels, share: float) -> RequestLabels:
    """The labels of a single request: without a decision of its caller, only a share of such requests has spans."""
    if labels.origin is None:
        return labels
    origin = labels.origin.sampled_if(sampling.chosen_trace(labels.origin.context.trace_id, share))
    return replace(labels, origin=origin, traceparent=origin.context.header)


def _trace(request: Request) -> tuple[str | None, Origin | None]:
    """The trace context of a request, and its span if spans are recorded. Its answer and its log lines name the trace."""
    traceparent = trace_context.parse(request.headers.get(trace_context.HEADER))
    origin = Origin.of(traceparent, clock.wall_ns()) if recorder.on() else None
    traceparent = origin.context.header if origin else traceparent
    trace_context.enter(traceparent)
    if traceparent is not None:
        response_headers.add(request, {response_headers.TRACE_ID: str(trace_context.trace_id(traceparent))})
    return traceparent, origin


@dataclass(frozen=True, slots=True)
class SingleRoute:
    """The engine's route of one request that waits in the queue on OpenAI's routes, and how its body is checked."""

    endpoint: str
    examine: Examine
    kind: Kind


async def single_order(
    request: Request,
    tenant: Tenant,
    parts: Parts,
    route: SingleRoute,
    model: Model,
    item: dict[str, Any],
    *,
    idempotency_key: str | None = None,
    affinity: str | None = None,
    values: Mapping[str, str] = NO_VALUES,
) -> tuple[Order, Admitted[ItemFacts]]:
    """The order of one request that waits in the queue on OpenAI's routes, and the request as admitted. Raises BadInput.

    `affinity`, `values`: see `sync_requests.prepare`.
    """
    labels = labels_of(request, tenant, idempotency_key=idempotency_key, item=item)
    labels = labels if affinity is None else replace(labels, session=affinity)
    labels = thinned(labels, parts.settings.trace_sync_share)
    admission = parts.admission.begin(tenant, labels.spend, route.kind, parts.catalogue, stored=labels.stored)
    usual = parts.lengths.of(tenant.tenant_id)
    examine = examined_by(route.examine, usual)
    admitted = await admit(admission, model, item, route.endpoint, examine, values)
    policy_header.add(request, admission, admitted.model.name)
    order = Order(
        tenant,
        admitted.model,
        labels,
        endpoint=route.endpoint,
        kind=route.kind,
        open_ended=True,
        admission=admission,
    )
    return order, admitted


def examined_by(examine: Examine, usual: UsualLength | None) -> CheckItem:
    """How admission checks a request for a model, with the rules that this model has. `usual`: see `rules_of`."""
    return lambda model, item: examine(item, rules_of(model, usual, stream=True))


async def admit(
    admission: Admission,
    model: Model,
    item: dict[str, Any],
    endpoint: str,
    examine: CheckItem,
    values: Mapping[str, str] = NO_VALUES,
) -> Admitted[ItemFacts]:
    """A request as it may run. `values`: of placeholders that it has already. Raises BadInput naming the field, PolicyDenied."""
    try:
        done = off_loop.done if admission.redaction is None else off_loop.searched
        return await done(item, admission.admit, model, item, endpoint, examine, values)
    except ItemError as error:
        raise BadInput(f"Bad input: {error}", param=error.field or None, reason=error.reason) from None
