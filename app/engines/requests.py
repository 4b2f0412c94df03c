"""From a caller's item to the body an engine is sent. Pure."""

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from app.engines.private import ENGINE_PRIVATE_FIELDS

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
BATCH_PRIORITY = 10  # vLLM serves lower numbers first; callers who wait get 0

_OURS = frozenset({"external_reference", "custom_id", "requests", "raw", "session_id", "stream", "stream_options"})


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One call of an engine: POST `body` to `route`."""

    route: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Target:
    """What the engine side adds to every item: the name the engine serves the model under, and its defaults."""

    model: str
    default_max_tokens: int


def build(item: Mapping[str, Any], endpoint: str, target: Target, salt: str) -> EngineRequest:
    """The request for one item. `endpoint` is the route the item asks for; `salt` separates tenants' prefix caches."""
    hidden = _OURS | ENGINE_PRIVATE_FIELDS
    body = {key: value for key, value in item.items() if key not in hidden}
    route = endpoint
    if route == CHAT and "prompt" in body and body.get("messages") is None:
        prompt = body.pop("prompt")
        body.pop("messages", None)
        if item.get("raw") is True:
            route, body["prompt"] = COMPLETIONS, prompt
        else:
            body["messages"] = [{"role": "user", "content": prompt}]
    if isinstance(body.get("messages"), list):
        body["messages"] = [_with_content(message) for message in body["messages"]]
    if isinstance(body.get("response_format"), Mapping):
        body["response_format"] = response_format(body["response_format"])
    if body.get("max_tokens") is None and body.get("max_completion_tokens") is None:
        body["max_tokens"] = target.default_max_tokens
    body |= {"model": target.model, "stream": False, "priority": BATCH_PRIORITY, "cache_salt": salt}
    return EngineRequest(route, orjson.dumps(body))


def _with_content(message: object) -> object:
    """Workers AI takes a null content from anyone, vLLM only from an assistant that calls tools."""
    if isinstance(message, Mapping) and "content" in message and message["content"] is None:
        return message if message.get("tool_calls") else {**message, "content": ""}
    return message


def response_format(given: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAI's form. Workers AI puts the bare JSON schema where OpenAI has `{name, schema}`; both are accepted."""
    schema = given.get("json_schema")
    if given.get("type") != "json_schema" or not isinstance(schema, Mapping):
        return dict(given)
    wrapped = dict(schema) if isinstance(schema.get("schema"), Mapping) else {"schema": dict(schema)}
    return {**given, "json_schema": {"name": "response", **wrapped}}


def tenant_salt(secret: bytes, tenant_id: int) -> str:
    """The prefix-cache salt of a tenant: stable, and not to be guessed without the secret."""
    digest = hmac.digest(secret, f"slackwater cache salt {tenant_id}".encode(), hashlib.sha256)
    return urlsafe_b64encode(digest).decode().rstrip("=")
