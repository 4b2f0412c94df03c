"""The summary of each operation and the example of its body, for the OpenAPI document.

Keys are the method and the path below the account, or below `/v1` for OpenAI's routes.
"""

from collections.abc import Mapping
from typing import Any

_MODEL = "smollm2-135m-instruct"
_CHAT = {"model": _MODEL, "messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 30}
_SUBSCRIPTION = {
    "name": "nightly",
    "source": {"type": "workersAi.model"},
    "destination": {"type": "webhook", "url": "https://example.com/hooks"},
    "events": ["batch.succeeded", "batch.failed"],
}
_LINE = {"custom_id": "france", "body": _CHAT}
_WEBHOOK = {"name": "nightly", "url": "https://example.com/hooks", "event_types": ["batch.completed"]}

_POLICY = '[[rule]]\nid = "short"\nwhen = { task = "extract" }\nmax_tokens = 200\n'

SUMMARIES: Mapping[str, str] = {
    "get /status": "Get the status of the installation",
    "get v1/responses/{response_id}/input_items": "List the input items of a response",
    "post ai/run/{model}": "Run a model, submit a batch, or poll one",
    "post ai/run": "Run a model, submit a batch, or poll one; the model named in the body",
    "get ai/usage": "Get what the account used and what it cost",
    "get ai/quota": "Get the quotas of the account and what is used of them",
    "get ai/policy": "Get the policy in force and its rules for the account",
    "post ai/policy/test": "Test a policy on recorded requests",
    "get ai/budgets": "List budgets",
    "put ai/budgets/{name}": "Create or update a budget",
    "delete ai/budgets/{name}": "Delete a budget",
    "get ai/usage/explain": "Explain why the cost changed",
    "get ai/usage/compare": "Get the comparison of two variants",
    "get ai/latency": "Get how long answers took",
    "get ai/sessions": "Get how the prompts of sessions grow",
    "get ai/models/search": "Search models",
    "get ai/models/schema": "Get the schemas of a model",
    "get ai/tasks/search": "List tasks",
    "get ai/authors/search": "List authors of models",
    "get ai/batches": "List batches",
    "get ai/batches/{request_id}": "Get a batch",
    "get ai/batches/{request_id}/results": "Read the results of a batch",
    "get ai/batches/{request_id}/why": "Explain what a batch waits for",
    "get ai/batches/{request_id}/phases": "Get what a batch has waited for",
    "get ai/batches/{request_id}/errors": "Get why items of a batch failed",
    "get ai/batches/{request_id}/items": "List the items of a batch",
    "get ai/batches/{request_id}/items/{seq}": "Get an item of a batch",
    "get ai/incidents": "List what happened in the installation",
    "get ai/engines/{name}/history": "Get what an engine did",
    "get ai/engines/{name}/decisions": "List why an engine left more or less to batch work",
    "get ai/queue": "Get what waits of the account's batches, and when it will be done",
    "get ai/fairness": "Get what the account is due of the engines, and what it got",
    "get ai/find": "Search what an id, a name or a tag belongs to",
    "get ai/keys": "List the API keys of the account",
    "get ai/audit": "List what was done to the account, and by whom",
    "get ai/protection": "Get how synchronous callers are protected",
    "post ai/batches/{request_id}/retry": "Retry what failed of a batch",
    "post ai/batches/{request_id}/{verb}": "Pause, resume or cancel a batch",
    "delete ai/batches/{request_id}": "Delete the contents of a batch",
    "delete v1/batches/{batch_id}": "Delete the contents of a batch",
    "post v1/chat/completions": "Create a chat completion",
    "post v1/completions": "Create a text completion",
    "post v1/embeddings": "Create embeddings",
    "post v1/responses": "Create a response",
    "get v1/responses/{response_id}": "Get a background response",
    "delete v1/responses/{response_id}": "Delete a background response",
    "post v1/responses/{response_id}/cancel": "Cancel a background response",
    "post v1/files": "Upload a file",
    "get v1/files": "List files",
    "get v1/files/{file_id}": "Get a file",
    "delete v1/files/{file_id}": "Delete a file",
    "get v1/files/{file_id}/content": "Read the content of a file",
    "get v1/files/{file_id}/estimate": "Estimate a batch of a file",
    "post v1/uploads": "Begin an upload in parts",
    "post v1/uploads/{upload_id}/parts": "Add a part to an upload",
    "post v1/uploads/{upload_id}/complete": "Complete an upload",
    "post v1/uploads/{upload_id}/cancel": "Cancel an upload",
    "post v1/batches": "Create a batch",
    "get v1/batches": "List batches",
    "get v1/batches/{batch_id}": "Get a batch",
    "post v1/batches/{batch_id}/retry": "Retry what failed of a batch",
    "post v1/batches/{batch_id}/{verb}": "Cancel, pause or resume a batch",
    "get v1/models": "List models",
    "get v1/models/{name}": "Get a model",
    "post v1/webhook_endpoints": "Create a webhook",
    "get v1/webhook_endpoints": "List webhooks",
    "get v1/webhook_endpoints/{endpoint_id}": "Get a webhook",
    "post v1/webhook_endpoints/{endpoint_id}": "Update a webhook",
    "delete v1/webhook_endpoints/{endpoint_id}": "Delete a webhook",
    "post v1/webhook_endpoints/{endpoint_id}/rotate_secret": "Rotate the secret of a webhook",
    "post v1/webhook_endpoints/{endpoint_id}/test": "Test a webhook",
    "get v1/webhook_event_types": "List event types of webhooks",
    "post event_subscriptions/subscriptions": "Create a subscription",
    "get event_subscriptions/subscriptions": "List subscriptions",
    "get event_subscriptions/subscriptions/{subscription_id}": "Get a subscription",
    "patch event_subscriptions/subscriptions/{subscription_id}": "Update a subscription",
    "delete event_subscriptions/subscriptions/{subscription_id}": "Delete a subscription",
    "get event_subscriptions/subscriptions/{subscription_id}/deliveries": "List deliveries",
    "get event_subscriptions/subscriptions/{subscription_id}/deliveries/{delivery_id}": "Get a delivery",
    "post event_subscriptions/subscriptions/{subscription_id}/deliveries/{delivery_id}/redeliver": "Send a delivery again",
    "post event_subscriptions/subscriptions/{subscription_id}/replay": "Replay events to a subscription",
    "post event_subscriptions/subscriptions/{subscription_id}/pause": "Pause a subscription",
    "post event_subscriptions/subscriptions/{subscription_id}/disable": "Disable a subscription",
    "post event_subscriptions/subscriptions/{subscription_id}/test": "Test a subscription",
    "post event_subscriptions/subscriptions/{subscription_id}/rotate_secret": "Rotate the secret of a subscription",
    "get events": "Fetch events of queue subscriptions",
    "post events/ack": "Acknowledge fetched events",
    "get /operator/batches": "List the batches of all accounts",
    "get /operator/incidents": "List what happened, of all accounts",
    "get /operator/engines/{name}/history": "Get what an engine did",
    "get /operator/engines/{name}/decisions": "List why an engine left more or less to batch work",
    "get /operator/queue": "Get what waits of all batches, and when it will be done",
    "get /operator/fairness": "Get what each account is due of the engines, and what it got",
    "get /operator/find": "Search what an id, a name or a tag belongs to, in all accounts",
    "get /health": "Check that the process answers",
    "get /ready": "Check that the process can take submits",
    "get /version": "Get the version",
    "get /metrics": "Read metrics",
    "get /scale/{model}": "Get how many engines of a model are needed",
}

EXAMPLES: Mapping[str, Any] = {
    "post ai/run/{model}": {"requests": [{"prompt": "What is the capital of France?", "external_reference": "france"}]},
    "post ai/run": {"model": _MODEL, "requests": [{"prompt": "What is the capital of France?"}]},
    "post v1/chat/completions": _CHAT,
    "post v1/completions": {"model": _MODEL, "prompt": "The capital of France is", "max_tokens": 5},
    "post v1/embeddings": {"model": "@cf/baai/bge-m3", "input": ["What is the capital of France?"]},
    "post v1/responses": {"model": _MODEL, "input": "What is the capital of France?", "background": True},
    "post v1/files": {"purpose": "batch", "file": "@input.jsonl"},
    "post v1/uploads": {
        "filename": "input.jsonl",
        "purpose": "batch",
        "bytes": 1_000_000,
        "mime_type": "application/jsonl",
    },
    "post v1/uploads/{upload_id}/parts": {"data": "@part-1"},
    "post v1/uploads/{upload_id}/complete": {"part_ids": ["part_0123456789abcdef0123456789abcdef"]},
    "post v1/batches": {"endpoint": "/v1/chat/completions", "completion_window": "24h", "requests": [_LINE]},
    "post ai/policy/test": {"policy": _POLICY, "last": "7d"},
    "post v1/webhook_endpoints": _WEBHOOK,
    "post v1/webhook_endpoints/{endpoint_id}": {"event_types": ["batch.completed", "batch.failed"]},
    "post v1/webhook_endpoints/{endpoint_id}/rotate_secret": {"keep_old_secret_active_for_24_hours": True},
    "post v1/webhook_endpoints/{endpoint_id}/test": {"event_type": "batch.completed"},
    "put ai/budgets/{name}": {"max_cost": "500 USD", "period": "month", "tz": "Europe/Berlin", "soft": [75, 90]},
    "post event_subscriptions/subscriptions": _SUBSCRIPTION,
    "patch event_subscriptions/subscriptions/{subscription_id}": {"events": ["batch.succeeded"]},
    "post event_subscriptions/subscriptions/{subscription_id}/replay": {
        "since": "2026-11-22T00:00:00Z",
        "only_failed": True,
    },
    "post event_subscriptions/subscriptions/{subscription_id}/rotate_secret": {"overlap_hours": 24},
    "post events/ack": {"ids": ["1"]},
}


def name(method: str, path: str) -> str:
    """The key of an operation, without its prefix: an operation under several prefixes is described once."""
    below = path.removeprefix("/client/v4/accounts/{account_id}/")
    if below == path:
        return f"{method} {path.removeprefix('/') if path.startswith('/v1/') else path}"
    return f"{method} {below.removeprefix('ai/') if below.startswith('ai/v1/') else below}"
