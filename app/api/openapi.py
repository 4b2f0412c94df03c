"""The OpenAPI document: FastAPI's description of the routes, and the bodies, which routes parse themselves.

The description of a body has the rules that Slackwater checks; engines may check more.
"""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.api import openapi_admin as admin
from app.api import openapi_links as links
from app.api import openapi_operations as operations
from app.api import openapi_schemas as schemas
from app.api import openapi_webhooks as webhooks
from app.api.docs_page import QUERY
from app.api.openapi_answers import ANSWERS, LINES
from app.api.parameter_limits import BOUNDED

_DESCRIPTION = (
    "Durable batch inference in the slack of GPUs. The routes under `/client/v4/accounts/{account_id}/ai` speak as "
    "Cloudflare's Workers AI, those under `…/ai/v1` and `/v1` as OpenAI."
)
_ENDPOINTS = {
    "chat/completions": (schemas.CHAT, schemas.COMPLETION),
    "completions": (schemas.TEXT, schemas.COMPLETION),
    "embeddings": (schemas.EMBEDDINGS, schemas.LIST),
    "responses": (schemas.RESPONSES, schemas.OBJECT),
}
_SUMMARIES = {**operations.SUMMARIES, **admin.SUMMARIES}
_OPEN = ("/ready", "/status", "/scale/{model}")  # they take no key
_FORMS = {("post", "files"): schemas.FILE_UPLOAD, ("post", "uploads/{upload_id}/parts"): schemas.UPLOAD_PART}
_BODIES = {
    ("post", "batches"): schemas.FILE_BATCH,
    ("post", "conversations"): schemas.CONVERSATION,
    ("post", "conversations/{conversation_id}"): schemas.CONVERSATION_CHANGE,
    ("post", "conversations/{conversation_id}/items"): schemas.CONVERSATION_ITEMS,
    ("post", "pipelines"): schemas.PIPELINE,
    ("post", "pipelines/check"): schemas.PIPELINE,
    ("post", "uploads"): schemas.UPLOAD,
    ("post", "uploads/{upload_id}/complete"): schemas.UPLOAD_PARTS,
    ("post", "pipelines/{pipeline_id}/items/{stage}/{item}/answer"): schemas.OUTSIDE_ANSWER,
}
_WEBHOOK_BODIES = {
    "webhook_endpoints": webhooks.WEBHOOK,
    "{endpoint_id}": webhooks.WEBHOOK_CHANGE,
    "rotate_secret": webhooks.WEBHOOK_ROTATION,
    "test": webhooks.WEBHOOK_TEST,
}
_OWN_BODIES = {
    ("post", "subscriptions"): webhooks.SUBSCRIPTION,
    ("patch", "{subscription_id}"): webhooks.SUBSCRIPTION_CHANGE,
    ("post", "replay"): webhooks.REPLAY,
    ("post", "rotate_secret"): webhooks.ROTATION,
    ("post", "ack"): webhooks.ACKNOWLEDGED,
    ("put", "{name}"): schemas.BUDGET,
}


def install(app: FastAPI) -> None:
    """Serve the whole document at /openapi.json."""

    @cache
    def document() -> dict[str, Any]:
        return build(app)

    app.openapi = document  # type: ignore[method-assign]


def build(app: FastAPI) -> dict[str, Any]:
    """The document."""
    found = get_openapi(title=app.title, version=app.version, description=_DESCRIPTION, routes=app.routes)
    components = found.setdefault("components", {})
    components["schemas"] = {**components.get("schemas", {}), **schemas.COMPONENTS}
    key = {"type": "http", "scheme": "bearer", "description": "an API key, sk_sw_…"}
    components["securitySchemes"] = {"key": key, "operator": admin.SECURITY}
    for path, method, operation in _operations(found):
        operation["responses"].pop("422", None)
        operation["summary"] = _SUMMARIES.get(operations.name(method, path), operation["summary"])
        if path == "/metrics":
            operation["responses"]["200"]["content"] = {"text/plain": {"schema": schemas.STRING}}
        if path in ("/health", "/metrics", "/version"):
            continue
        operation["responses"]["default"] = _answer("An error", schemas.ref("Error"))
        if path not in _OPEN:
            operation["security"] = [{"key": []}]
        if path.startswith((admin.PREFIX, "/operator/")):
            admin.describe(method, path, operation)
        else:
            _describe(path, method, operation)
        if path.endswith("/usage/export"):
            operation["responses"]["200"]["content"] = {"text/csv": {"schema": schemas.STRING}}
        _bound(operation)
        _exemplify(path, method, operation)
    links.add(found)
    return found


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _bound(operation: dict[str, Any]) -> None:
    """Set the maximal length of a text in the path. Routes parse it; a longer one names nothing."""
    for parameter in operation.get("parameters", []):
        schema = parameter.get("schema", {})
        if parameter["in"] == "path" and schema.get("type") == "string" and not schema.keys() & {"enum", "pattern"}:
            schema.update(BOUNDED)


def _describe(path: str, method: str, operation: dict[str, Any]) -> None:
    """Add the body and the 2xx answer of one operation."""
    good = operation["responses"]["200"]
    if path.startswith("/v1/") or "/ai/v1/" in path:
        _describe_openai(method, path.rpartition("/v1/")[2], operation)
        return
    if "/ai/run" in path and method == "post":
        generic = path.endswith("/ai/run")
        operation["requestBody"] = _body(schemas.RUN_GENERIC if generic else schemas.RUN, lines=not generic)
        operation.setdefault("parameters", []).extend([*schemas.RUN_PARAMETERS, *schemas.STRICT])
        good["content"] = {
            "application/json": {"schema": schemas.ref("Success")},
            "text/event-stream": {"schema": schemas.STREAM},
        }
        return
    if path.startswith("/client/"):
        good["content"] = {"application/json": {"schema": schemas.ref("Success")}}
    if path.endswith("/results"):
        good["content"] = {"application/x-ndjson": {"schema": schemas.LINES}}
    if path.endswith("/ai/models/search"):
        good["content"] = {"application/json": {"schema": {"anyOf": [schemas.ref("Success"), schemas.OPENROUTER]}}}
    if path.endswith("/ai/policy/test"):
        operation["requestBody"] = _body(schemas.POLICY_TEST)
    elif (method, path.rpartition("/")[2]) in _OWN_BODIES:
        operation["requestBody"] = _body(_OWN_BODIES[method, path.rpartition("/")[2]])


def _exemplify(path: str, method: str, operation: dict[str, Any]) -> None:
    """Add the examples of a body and of a 2xx answer."""
    example = operations.EXAMPLES.get(operations.name(method, path))
    if "requests" in (example or ()) and "/ai/run" in path:
        operation[QUERY] = "?queueRequest=true"
    answers = operations.name(method, path)
    for kind, content in operation["responses"]["200"].get("content", {}).items():
        if kind == "application/json" and answers in ANSWERS:
            content["examples"] = {name: {"value": value} for name, value in ANSWERS[answers].items()}
        elif kind == "application/x-ndjson" and answers in LINES:
            content["example"] = json.dumps(LINES[answers], separators=(",", ":")) + "\n"
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        if example is not None and kind != "application/x-ndjson":
            content["example"] = example


def _describe_openai(method: str, name: str, operation: dict[str, Any]) -> None:
    """Add the body and the 2xx answer of one of OpenAI's routes."""
    good = operation["responses"]["200"]
    if name in _ENDPOINTS:
        body, result = _ENDPOINTS[name]
        operation.setdefault("parameters", []).extend(schemas.STRICT)
        operation["requestBody"] = _body(body)
        good["content"] = {"application/json": {"schema": result}, "text/event-stream": {"schema": schemas.STREAM}}
    elif (method, name) in _FORMS:
        form = {"multipart/form-data": {"schema": _FORMS[method, name]}}
        operation["requestBody"] = {"required": True, "content": form}
    elif (method, name) in _BODIES:
        operation["requestBody"] = _body(_BODIES[method, name])
        if name == "batches":
            operation.setdefault("parameters", []).extend(schemas.STRICT)
    elif name == "files/{file_id}/content":
        good["content"] = {"application/octet-stream": {"schema": schemas.STRING}}
        operation["responses"]["206"] = {"description": "The part that Range asked for", "content": good["content"]}
        operation["responses"]["416"] = {"description": "Nothing of the range exists"}
    elif name == "pipelines/{pipeline_id}/results":
        good["content"] = {"application/x-ndjson": {"schema": schemas.LINES}}
    elif (method, name) == ("get", "responses/{response_id}"):
        good["content"]["text/event-stream"] = {"schema": schemas.STREAM}
    elif method == "post" and name.startswith("webhook_endpoints"):
        operation["requestBody"] = _body(_WEBHOOK_BODIES[name.rpartition("/")[2]])


def _body(schema: dict[str, Any], *, lines: bool = False) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    if lines:
        content["application/x-ndjson"] = {"schema": {"type": "string", "description": "one item a line"}}
    return {"required": True, "content": content}


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
