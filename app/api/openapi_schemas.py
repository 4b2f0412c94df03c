"""JSON schemas of bodies and answers, for the OpenAPI document. Their fields are those that
`app.batches.validation` checks.
"""

from collections.abc import Mapping
from typing import Any

from app.api.parameter_limits import NUMBER, declared
from app.api.submit_params import KEY, TAGS, WINDOW
from app.api.unknown_fields import SWITCH
from app.batches.openai.uploads import PURPOSE, UNREAD_PURPOSES
from app.batches.validation.fields import FIELDS
from app.batches.validation.openai_lines import ROUTES
from app.batches.validation.text_generation import LENGTHS, ROLES
from app.webhooks.formats import FORMATS, OPENAI_TYPES
from app.webhooks.pull_queue import MOST as MOST_FETCHED
from app.webhooks.validation import MOST_IN_FLIGHT, MOST_PER_SECOND, MOST_TAGS

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """A component of this module."""
    return {"$ref": f"#/components/schemas/{name}"}


def _one(*required: str, **properties: Any) -> Schema:
    return {"type": "object", "required": list(required), "properties": properties}


def _only(*required: str, **properties: Any) -> Schema:
    return {**_one(*required, **properties), "additionalProperties": False}


STRING: Schema = {"type": "string"}
TEXT_VALUE: Schema = {"type": "string", "minLength": 1}
OBJECT: Schema = {"type": "object"}
STREAM: Schema = {"description": "server-sent events; the last is `data: [DONE]`, or `response.completed`"}
LINES: Schema = {"type": "string", "description": "one entry of `responses` a line"}
LIST: Schema = _one("object", "data", object={"const": "list"}, data={"type": "array", "items": OBJECT})
OPENROUTER: Schema = _one("data", data={"type": "array", "items": OBJECT})
COMPLETION: Schema = _one("choices", choices={"type": "array", "items": OBJECT}, usage=OBJECT)


def _or_null(schema: Mapping[str, Any]) -> Schema:
    """A field that may be null, because some clients send all their fields."""
    return {"anyOf": [dict(schema), {"type": "null"}]}


_FIELDS: Schema = {name: _or_null(field.schema) for name, field in FIELDS.items()}
_LENGTH: Schema = _or_null({"type": "integer", "minimum": 1})
_GENERATION: Schema = _FIELDS | dict.fromkeys(LENGTHS, _LENGTH)
_PART: Schema = {
    "oneOf": [
        _only("type", "text", type={"const": "text"}, text=STRING),
        _only("type", "image_url", type={"const": "image_url"}, image_url=_only("url", url=STRING, detail=STRING)),
    ]
}
_MESSAGES: Schema = {"type": "array", "minItems": 1, "items": ref("Message")}
_MODEL: Schema = {"type": "string", "description": "a name or alias of the catalogue"}
_INPUTS: Schema = {
    "oneOf": [
        TEXT_VALUE,
        {"type": "array", "minItems": 1, "items": TEXT_VALUE},
        {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
    ]
}

CHAT: Schema = _one("model", "messages", model=_MODEL, messages=_MESSAGES, **_GENERATION)
TEXT: Schema = _one("model", "prompt", model=_MODEL, prompt=_INPUTS, **_FIELDS, max_tokens=_LENGTH)
EMBEDDINGS: Schema = _one("model", "input", model=_MODEL, input=_INPUTS)
_RESPONSE_INPUT: Schema = {"oneOf": [TEXT_VALUE, {"type": "array", "minItems": 1, "items": OBJECT}]}
RESPONSES: Schema = _one(
    "model",
    "input",
    model=_MODEL,
    input=_RESPONSE_INPUT,
    max_output_tokens=_LENGTH,
    stream=_FIELDS["stream"],
)
_SUBMIT: Schema = {
    **_one("requests", requests={"type": "array", "minItems": 1, "items": ref("Item")}),
    "additionalProperties": False,
}
_POLL: Schema = _one("request_id", request_id={"type": "string", "format": "uuid"})
RUN: Schema = {"anyOf": [_SUBMIT, _POLL, ref("Item")]}
RUN_GENERIC: Schema = {"allOf": [_one(model=_MODEL), {"anyOf": [_one("requests"), _POLL, ref("Item")]}]}
RUN_PARAMETERS: list[Schema] = [
    {
        "name": "queueRequest",
        "in": "query",
        "schema": {"enum": ["true", "false"]},
        "description": "true: submit `requests` as a batch",
    },
    {
        "name": "tags",
        "in": "query",
        "schema": {"type": "string", "pattern": TAGS},
        "description": "at most five, by commas; or as `tag`",
    },
    {
        "name": "completion_window",
        "in": "query",
        "schema": {"type": "string", "pattern": WINDOW},
        "description": "90s, 30m, 24h, 7d: expires then",
    },
    {
        "name": "Idempotency-Key",
        "in": "header",
        "schema": {"type": "string", "maxLength": 255, "pattern": KEY},
        "description": "the same key: the same batch",
    },
    {
        "name": "cf-aig-metadata",
        "in": "header",
        "schema": STRING,
        "description": "pairs that subscriptions filter by, JSON",
    },
    {"name": "x-session-affinity", "in": "header", "schema": STRING, "description": "keeps a session at one engine"},
]
_SWITCH: Schema = {"enum": ["", *SWITCH]}
STRICT: list[Schema] = [
    {"name": "strict", "in": "query", "schema": _SWITCH, "description": "true: a field that is not known is refused"},
    {"name": "x-slackwater-strict", "in": "header", "schema": _SWITCH, "description": "the same"},
]
_TIME: Schema = {"type": "string", "format": "date-time"}
_TEXT_OR_NULL: Schema = _or_null(STRING)
_EVENTS: Schema = {"type": "array", "items": STRING}
_FORMAT: Schema = {"enum": [*FORMATS, None]}
_LIMITS: Schema = {
    "max_in_flight": {"type": ["integer", "null"], "minimum": 1, "maximum": MOST_IN_FLIGHT},
    "max_per_second": {"type": ["number", "null"], "minimum": 0.01, "maximum": MOST_PER_SECOND},
    "ordered": {"type": ["boolean", "null"]},
}
_URL: Schema = _one("type", "url", type={"const": "webhook"}, url=STRING, **_LIMITS)
_DESTINATION: Schema = {
    "oneOf": [
        _one("type", "url", type={"const": "webhook"}, url=STRING, secret=_TEXT_OR_NULL, format=_FORMAT, **_LIMITS),
        _one("type", "queue_id", type={"const": "queues.queue"}, queue_id=TEXT_VALUE, format=_FORMAT),
    ]
}
_SOURCE: Schema = _one(
    type={"const": "workersAi.model"},
    model_name=_TEXT_OR_NULL,
    tags=_or_null({"type": "array", "items": TEXT_VALUE, "maxItems": MOST_TAGS}),
    metadata=_or_null({"type": "object", "additionalProperties": STRING}),
)
SUBSCRIPTION: Schema = _one(
    "name",
    "source",
    "destination",
    "events",
    name=STRING,
    source=_SOURCE,
    destination=_DESTINATION,
    events=_EVENTS,
    enabled={"type": "boolean"},
)
SUBSCRIPTION_CHANGE: Schema = _one(
    name=_TEXT_OR_NULL,
    enabled={"type": ["boolean", "null"]},
    events=_or_null(_EVENTS),
    destination=_or_null(_URL),
)
REPLAY: Schema = _one(
    "since", since=_TIME, until=_or_null(_TIME), events=_or_null(_EVENTS), only_failed={"type": "boolean"}
)
ROTATION: Schema = _one(secret=_TEXT_OR_NULL, overlap_hours={"type": "number", "minimum": 0, "maximum": 168})

ACKNOWLEDGED: Schema = _one(
    "ids", ids={"type": "array", "items": {"type": "string", "pattern": NUMBER}, "maxItems": MOST_FETCHED}
)

_PURPOSE: Schema = {"enum": [PURPOSE, *UNREAD_PURPOSES]}
FILE_UPLOAD: Schema = _one("purpose", "file", purpose=_PURPOSE, file={"type": "string", "format": "binary"})
_FILE_BATCH: Schema = _one(
    "endpoint",
    "completion_window",
    input_file_id=STRING,
    endpoint={"enum": [*ROUTES]},
    completion_window={"type": "string", "description": "24h, 30m, 7d, or background for no deadline"},
    metadata={"type": "object", "additionalProperties": STRING},
    idempotency_key=_or_null({"type": "string", "maxLength": 255, "pattern": KEY}),
    requests={
        "type": ["array", "null"],
        "minItems": 1,
        "description": "lines, in place of input_file_id",
        "items": {"type": "object"},
    },
    mixed={"type": ["boolean", "null"], "description": "lines may name several models and endpoints"},
    validation={"enum": ["strict", "lenient", None], "description": "lenient: a bad line fails alone"},
    partial_results={"type": ["boolean", "null"], "description": "the output file can be read while the batch runs"},
)
FILE_BATCH: Schema = _FILE_BATCH | {"anyOf": [{"required": ["input_file_id"]}, {"required": ["requests"]}]}
_EXPIRY: Schema = _one(
    "anchor", "seconds", anchor={"const": "created_at"}, seconds={"type": "integer", **declared(3600, 30 * 86_400)}
)
UPLOAD: Schema = _one(
    "filename",
    "purpose",
    "bytes",
    "mime_type",
    filename=STRING,
    purpose=_PURPOSE,
    bytes={"type": "integer", "minimum": 1},
    mime_type=STRING,
    expires_after=_or_null(_EXPIRY),
)
UPLOAD_PART: Schema = _one("data", data={"type": "string", "format": "binary"})
UPLOAD_PARTS: Schema = _one("part_ids", part_ids={"type": "array", "minItems": 1, "items": STRING}, md5=STRING)

_OPENAI_EVENT: Schema = {"enum": sorted(OPENAI_TYPES.values())}
_OPENAI_EVENTS: Schema = {"type": "array", "items": _OPENAI_EVENT, "minItems": 1}
WEBHOOK: Schema = _one("name", "url", "event_types", name=STRING, url=STRING, event_types=_OPENAI_EVENTS)
WEBHOOK_CHANGE: Schema = _one(name=STRING, url=STRING, event_types=_OPENAI_EVENTS)
WEBHOOK_ROTATION: Schema = _one(keep_old_secret_active_for_24_hours={"type": "boolean"})
WEBHOOK_TEST: Schema = _one("event_type", event_type=_OPENAI_EVENT)

COMPONENTS: dict[str, Schema] = {
    "Message": _one(
        "role",
        role={"enum": [*ROLES]},
        content={"oneOf": [STRING, {"type": "array", "items": _PART}, {"type": "null"}]},
    ),
    "Item": {
        "type": "object",
        "description": "what the model takes synchronously, and an external_reference that comes back with the result",
        "properties": {
            "prompt": TEXT_VALUE,
            "messages": _MESSAGES,
            "input": {**_RESPONSE_INPUT, "description": "of a model of shape responses, as of …/ai/v1/responses"},
            "text": {"oneOf": [TEXT_VALUE, {"type": "array", "minItems": 1, "items": TEXT_VALUE}]},
            "contexts": {"type": "array", "minItems": 1, "items": _one("text", text=TEXT_VALUE)},
            **_GENERATION,
        },
        "oneOf": [
            {"required": ["prompt"]},
            {"required": ["messages"]},
            {"required": ["input"]},
            {"required": ["text"]},
            {"required": ["contexts"]},
        ],
    },
    "Success": _one(
        "result",
        "success",
        "errors",
        "messages",
        result={"description": "what was asked for"},
        success={"type": "boolean"},
        errors={"type": "array", "items": ref("Problem")},
        messages={"type": "array"},
    ),
    "Error": _one(
        "result",
        "success",
        "errors",
        "messages",
        result={"type": ["null", "object"]},
        success={"const": False},
        errors={"type": "array", "minItems": 1, "items": ref("Problem")},
        messages={"type": "array"},
        error=_one(
            "message",
            "type",
            message=STRING,
            type=STRING,
            param={"type": ["string", "null"]},
            code={"type": ["string", "null"]},
        ),
    ),
    "Problem": _one("code", "message", code={"type": "integer"}, message=STRING),
}
