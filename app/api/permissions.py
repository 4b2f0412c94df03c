"""Which role a key needs for which operation, and from where it may come. No database is asked.

An operation that is not listed needs an admin.
"""

from collections.abc import Mapping
from functools import cache

from fastapi import Request

from app.api import openapi_operations
from app.errors import AuthenticationError
from app.openai_codes import OpenAICode
from app.tenants.key_scope import KeyRole
from app.tenants.service import Tenant
from app.webhooks.endpoints import Endpoint

_SEEN = (
    "get /client/v4/accounts",
    "get ai/models/search",
    "get ai/models/schema",
    "get ai/tasks/search",
    "get ai/authors/search",
    "get v1/models",
    "get v1/models/{name}",
    "get ai/batches",
    "get ai/batches/{request_id}",
    "get ai/batches/{request_id}/why",
    "get ai/batches/{request_id}/phases",
    "get ai/batches/{request_id}/errors",
    "get ai/batches/{request_id}/items",
    "get ai/batches/{request_id}/items/{seq}",
    "get ai/incidents",
    "get ai/engines/{name}/history",
    "get ai/engines/{name}/decisions",
    "get ai/queue",
    "get ai/fairness",
    "get ai/find",
    "get ai/conversations",
    "get ai/conversations/{conversation_id}/turns",
    "get ai/keys",
    "get ai/protection",
    "get ai/usage",
    "get ai/usage/export",
    "get ai/usage/explain",
    "get ai/usage/compare",
    "get ai/prices",
    "get ai/latency",
    "get ai/sessions",
    "get ai/quota",
    "get ai/policy",
    "post ai/policy/test",
    "get ai/budgets",
    "get v1/files",
    "get v1/files/{file_id}",
    "get v1/batches",
    "get v1/batches/{batch_id}",
    "get v1/pipelines",
    "get v1/pipelines/{pipeline_id}",
    "get v1/webhook_endpoints",
    "get v1/webhook_endpoints/{endpoint_id}",
    "get v1/webhook_event_types",
    "get event_subscriptions/subscriptions",
    "get event_subscriptions/subscriptions/{subscription_id}",
)
# Runs, queues, or shows prompts and answers.
_SUBMITTED = (
    "post ai/run/{model}",
    "post ai/run",
    "post v1/chat/completions",
    "post v1/completions",
    "post v1/embeddings",
    "post v1/responses",
    "get v1/responses/{response_id}",
    "post v1/conversations",
    "get v1/conversations/{conversation_id}",
    "post v1/conversations/{conversation_id}",
    "delete v1/conversations/{conversation_id}",
    "get v1/conversations/{conversation_id}/items",
    "post v1/conversations/{conversation_id}/items",
    "get v1/conversations/{conversation_id}/items/{item_id}",
    "delete v1/conversations/{conversation_id}/items/{item_id}",
    "get v1/responses/{response_id}/input_items",
    "delete v1/responses/{response_id}",
    "post v1/responses/{response_id}/cancel",
    "get ai/batches/{request_id}/results",
    "post ai/batches/{request_id}/retry",
    "post ai/batches/{request_id}/{verb}",
    "delete ai/batches/{request_id}",
    "delete v1/batches/{batch_id}",
    "post v1/files",
    "get v1/files/{file_id}/content",
    "get v1/files/{file_id}/estimate",
    "delete v1/files/{file_id}",
    "post v1/uploads",
    "post v1/uploads/{upload_id}/parts",
    "post v1/uploads/{upload_id}/complete",
    "post v1/uploads/{upload_id}/cancel",
    "post v1/batches",
    "post v1/batches/{batch_id}/retry",
    "post v1/batches/{batch_id}/{verb}",
    "get v1/pipelines/{pipeline_id}/waiting",
    "post v1/pipelines/{pipeline_id}/items/{stage}/{item}/answer",
    "post v1/pipelines",
    "post v1/pipelines/check",
    "get v1/pipelines/{pipeline_id}/results",
    "get v1/pipelines/{pipeline_id}/items/{custom_id}",
    "delete v1/pipelines/{pipeline_id}",
    "post v1/pipelines/{pipeline_id}/retry",
    "post v1/pipelines/{pipeline_id}/{verb}",
    "get events",
    "post events/ack",
)
# Listed so that a test finds an operation that nobody thought of.
_ADMIN = (
    "get ai/audit",
    "put ai/budgets/{name}",
    "delete ai/budgets/{name}",
    "post v1/webhook_endpoints",
    "post v1/webhook_endpoints/{endpoint_id}",
    "delete v1/webhook_endpoints/{endpoint_id}",
    "post v1/webhook_endpoints/{endpoint_id}/rotate_secret",
    "post v1/webhook_endpoints/{endpoint_id}/test",
    "post event_subscriptions/subscriptions",
    "patch event_subscriptions/subscriptions/{subscription_id}",
    "delete event_subscriptions/subscriptions/{subscription_id}",
    "get event_subscriptions/subscriptions/{subscription_id}/deliveries",
    "get event_subscriptions/subscriptions/{subscription_id}/deliveries/{delivery_id}",
    "post event_subscriptions/subscriptions/{subscription_id}/deliveries/{delivery_id}/redeliver",
    "post event_subscriptions/subscriptions/{subscription_id}/replay",
    "post event_subscriptions/subscriptions/{subscription_id}/pause",
    "post event_subscriptions/subscriptions/{subscription_id}/disable",
    "post event_subscriptions/subscriptions/{subscription_id}/test",
    "post event_subscriptions/subscriptions/{subscription_id}/rotate_secret",
)
LEAST_ROLES: Mapping[str, KeyRole] = {
    **dict.fromkeys(_SEEN, KeyRole.VIEWER),
    **dict.fromkeys(_SUBMITTED, KeyRole.SUBMITTER),
    **dict.fromkeys(_ADMIN, KeyRole.ADMIN),
}


def seen_endpoint(tenant: Tenant, endpoint: Endpoint) -> Endpoint:
    """A webhook as a key may see it: its URL is whole only for a key that may set it."""
    return endpoint if tenant.scope.role is KeyRole.ADMIN else endpoint.masked()


def check(tenant: Tenant, request: Request) -> None:
    """Raise AuthenticationError unless the key's role and its networks allow this request."""
    scope = tenant.scope
    if scope.role is not KeyRole.ADMIN:
        least = _least_role(request.method, request.scope["route"].path_format)
        if not scope.role.includes(least):
            raise AuthenticationError(
                f"The API key {tenant.key_id} has the role {scope.role}; this takes the role {least}",
                status=403,
                reason=OpenAICode.NOT_PERMITTED,
            )
    if scope.networks is not None:
        address = request.client.host if request.client else None
        if not scope.may_come_from(address):
            raise AuthenticationError(
                f"The API key {tenant.key_id} may not be used from {address or 'an unknown address'}",
                status=403,
                reason=OpenAICode.NETWORK_DENIED,
            )


@cache
def _least_role(method: str, path: str) -> KeyRole:
    return LEAST_ROLES.get(openapi_operations.name("get" if method == "HEAD" else method.lower(), path), KeyRole.ADMIN)
