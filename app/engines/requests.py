"""Builds the request body for an engine from a caller's item. Pure."""

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import orjson

from app.engines import content_parts, embeddings
from app.engines.catalogue import Model
from app.engines.dialects import VLLM_TERMS, Terms
from workers.engine.private_fields import ENGINE_PRIVATE_FIELDS

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"
RESPONSES = "/v1/responses"
UNFIT = "unfit"  # used as the route of an invalid item, whose body is the error

_OURS = frozenset(
    {
        "external_reference",
        "custom_id",
        "requests",
        "raw",
        "session_id",
        "normalize_tool_output",
        "stream",
        "stream_options",
        "options",
        "background",
        "service_tier",
    }
)
# The fields that limit the answer, by route. A route that generates nothing has none.
_LENGTHS = {
    CHAT: ("max_tokens", "max_completion_tokens"),
    COMPLETIONS: ("max_tokens",),
    RESPONSES: ("max_output_tokens",),
    EMBEDDINGS: (),
}


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One call of an engine: POST `body` to `route`. `traceparent`: the W3C trace context that goes with it, as it is.
    `base64`: the vectors of the answer are to be in base64.
    """

    route: str
    body: bytes
    traceparent: str | None = None
    base64: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """What is added to every item: the model's name at the engine, and its defaults.

    `context_window`: tokens of prompt and answer together. `pooling`: the model makes embeddings and generates nothing.
    `terms`: how the engine is spoken to.
    """

    model: str
    default_max_tokens: int
    context_window: int
    pooling: bool = False
    terms: Terms = VLLM_TERMS

    @classmethod
    def of(cls, model: Model) -> Self:
        """The target of a catalogue model, with the catalogue's name for it."""
        return cls(model.served, model.default_max_tokens, model.context_window, model.task == "text-embeddings")


def build(
    item: Mapping[str, Any],
    endpoint: str,
    target: Target,
    salt: str,
    *,
    synchronous: bool = False,
    stream: bool = False,
    open_ended: bool = False,
) -> EngineRequest:
    """The engine's request for one item. `endpoint` is the item's route. `salt` separates the prefix caches of tenants.

    If the item sets no limit of answer tokens, the target's default applies, or with `open_ended` the rest of the context.
    A stream always ends with the usage. The engine does not store the answer. Fields that the engine's dialect lacks are left
    out, because some servers refuse a field that they do not know.
    """
    hidden = _OURS | ENGINE_PRIVATE_FIELDS
    body = {key: value for key, value in item.items() if key not in hidden}
    route = _routed(body, item) if endpoint == CHAT else endpoint
    if route == EMBEDDINGS:
        body = embeddings.engine_body(body, truncates=target.terms.dialect.rest_of_window)
    if isinstance(body.get("messages"), list):
        body["messages"] = [_with_content(message) for message in body["messages"]]
    if isinstance(body.get("response_format"), Mapping):
        body["response_format"] = response_format(body["response_format"])
    body |= {"model": target.model} | _extensions(target.terms, salt, synchronous=synchronous)
    if lengths := _LENGTHS[route]:
        if all(body.get(name) is None for name in lengths):
            body |= _usual_limit(route, target, open_ended=open_ended)
        body["stream"] = stream
    if route == RESPONSES:
        body["store"] = False
    elif stream:
        body["stream_options"] = {"include_usage": True}
    return EngineRequest(route, orjson.dumps(body), base64=route == EMBEDDINGS and embeddings.wants_base64(item))


def _extensions(terms: Terms, salt: str, *, synchronous: bool = False) -> dict[str, Any]:
    """The fields beyond OpenAI's that this engine takes. A request without a priority has the engine's default."""
    dialect = terms.dialect
    priority = dialect.sync_priority if synchronous else terms.batch_priority
    fields = {} if priority is None else {"priority": priority}
    return fields | ({"cache_salt": salt} if dialect.salts and salt else {})


def _routed(body: dict[str, Any], item: Mapping[str, Any]) -> str:
    """The route of a body that is a chat unless its form differs. A prompt is converted to the form of that route."""
    if is_response_request(item):
        return RESPONSES
    if "prompt" not in body or body.get("messages") is not None:
        return CHAT
    prompt = body.pop("prompt")
    body.pop("messages", None)
    if item.get("raw") is True:
        body["prompt"] = prompt
        return COMPLETIONS
    body["messages"] = [{"role": "user", "content": prompt}]
    return CHAT


def is_response_request(item: Mapping[str, Any]) -> bool:
    """Whether an item of Workers AI's routes has the form of the Responses API, and gets such an answer."""
    return item.get("input") is not None and item.get("prompt") is None and item.get("messages") is None


def _usual_limit(route: str, target: Target, *, open_ended: bool) -> dict[str, int]:
    """The limit of an answer whose item sets none."""
    if not open_ended:
        return {_LENGTHS[route][0]: target.default_max_tokens}
    if route != COMPLETIONS:
        return {}
    # The default of a text completion is 16 tokens. vLLM reduces a limit of the whole window to what the prompt leaves.
    rest = target.context_window if target.terms.dialect.rest_of_window else target.default_max_tokens
    return {"max_tokens": rest}


def _with_content(message: object) -> object:
    """The message with known keys in its parts. Null content becomes empty, as vLLM allows it only beside tool calls."""
    if not isinstance(message, Mapping) or "content" not in message:
        return message
    content = message["content"]
    if isinstance(content, list):
        return {**message, "content": [content_parts.rebuilt(part) for part in content]}
    if content is None and not message.get("tool_calls"):
        return {**message, "content": ""}
    return message


def lengths(route: str) -> tuple[str, ...]:
    """The fields that limit the answer on this route of an engine; none where nothing is generated."""
    return _LENGTHS.get(route, ())


def response_format(given: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAI's form. Workers AI puts the bare JSON schema where OpenAI has `{name, schema}`; both are accepted."""
    schema = given.get("json_schema")
    if given.get("type") != "json_schema" or not isinstance(schema, Mapping):
        return dict(given)
    wrapped = dict(schema) if isinstance(schema.get("schema"), Mapping) else {"schema": dict(schema)}
    return {**given, "json_schema": {"name": "response", **wrapped}}


def streamed(request: EngineRequest) -> EngineRequest:
    """The same request, answered as a stream that ends with the usage."""
    body = orjson.loads(request.body) | {"stream": True, "stream_options": {"include_usage": True}}
    return replace(request, body=orjson.dumps(body))


@lru_cache(maxsize=4096)
def tenant_salt(secret: bytes, tenant_id: int) -> str:
    """The prefix-cache salt of a tenant: stable, and not to be guessed without the secret."""
    digest = hmac.digest(secret, f"slackwater cache salt {tenant_id}".encode(), hashlib.sha256)
    return urlsafe_b64encode(digest).decode().rstrip("=")


PROBE = "0"  # the prompt of a probe


def probe_routes(target: Target) -> tuple[str, ...]:
    """The routes where an engine of this kind may be probed."""
    return (EMBEDDINGS,) if target.pooling else (CHAT, COMPLETIONS)


def probe_request(target: Target, route: str | None = None) -> EngineRequest:
    """The smallest request that makes an engine compute: one token, with batch priority. `route`: one of `probe_routes`."""
    extensions = _extensions(target.terms, "")
    if target.pooling:
        return EngineRequest(EMBEDDINGS, orjson.dumps({"model": target.model, "input": PROBE} | extensions))
    asked = {"messages": [{"role": "user", "content": PROBE}]} if route == CHAT else {"prompt": PROBE}
    body = {"model": target.model, **asked, "max_tokens": 1, "stream": False} | extensions
    return EngineRequest(route or COMPLETIONS, orjson.dumps(body))
