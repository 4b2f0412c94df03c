"""JSON schemas of bodies and answers, for the OpenAPI document. Their fields are those that
`app.batches.validation` checks.
"""

from collections.abc import Mapping
from typing import Any

from app import labels
from app.api.parameter_limits import BOUNDED, declared
from app.api.submit_params import KEY, LONGEST, NO_DEADLINE, TAGS, WINDOW
from app.api.unknown_fields import SWITCH
from app.batches.openai.uploads import PURPOSE, UNREAD_PURPOSES
from app.batches.validation.fields import FIELDS
from app.batches.validation.openai import TEXT_ITEM_TYPES
from app.batches.validation.openai_lines import ROUTES
from app.batches.validation.schemas import ROLE
from app.batches.validation.text_generation import LENGTHS
from app.budgets import terms as budget_terms
from app.budgets.rules import Queued, Reserve, Synchronous
from app.files import names
from app.metering.windows import Period

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """A component of this module."""
    return {"$ref": f"#/components/schemas/{name}"}


def one(*required: str, **properties: Any) -> Schema:
    """An object that has these properties, and may have others."""
    return {"type": "object", "required": list(required), "properties": properties}


def only(*required: str, **properties: Any) -> Schema:
    """An object that has no other properties."""
    return {**one(*required, **properties), "additionalProperties": False}


STRING: Schema = {"type": "string"}
TEXT_VALUE: Schema = {"type": "string", "minLength": 1}
OBJECT: Schema = {"type": "object"}
STREAM: Schema = {"description": "server-sent events; the last is `data: [DONE]`, or `response.completed`"}
LINES: Schema = {"type": "string", "description": "one entry of `responses` a line"}
LIST: Schema = one("object", "data", object={"const": "list"}, data={"type": "array", "items": OBJECT})
OPENROUTER: Schema = one("data", data={"type": "array", "items": OBJECT})
COMPLETION: Schema = one("choices", choices={"type": "array", "items": OBJECT}, usage=OBJECT)


def _several(items: Mapping[str, Any], least: int = 0) -> Schema:
    return {"type": "array", "minItems": least, "maxItems": budget_terms.MOST_LISTED, "items": dict(items)}


BUDGET: Schema = {
    **only(
        max_cost={"type": "string", "pattern": budget_terms.AMOUNT},
        max_tokens={"type": "integer", "minimum": 1, "maximum": budget_terms.MOST_TOKENS},
        period={"enum": [*Period]},
        tz=STRING,
        key=TEXT_VALUE,
        workflow={"type": "string", "pattern": budget_terms.NAME},
        alerts_at=_several({"type": "integer", "minimum": 1, "maximum": 99}),
        on_limit=only(queued={"enum": [*Queued]}, synchronous={"enum": [*Synchronous]}),
        reserve={"enum": [*Reserve]},
    ),
    "oneOf": [{"required": ["max_cost"]}, {"required": ["max_tokens"]}],
    "not": {"required": ["key", "workflow"]},
}


def or_null(schema: Mapping[str, Any]) -> Schema:
    """A field that may be null, because some clients send all their fields."""
    return {"anyOf": [dict(schema), {"type": "null"}]}


def _text(least: int, most: int) -> Schema:
    return {"type": "string", "minLength": least, "maxLength": most, "pattern": BOUNDED["pattern"]}


def pairs(*others: Schema) -> Schema:
    """The metadata of a batch, or what a subscription wants of it. `others`: what its values may be beside texts."""
    text = _text(0, labels.METADATA_VALUE)
    return {
        "type": "object",
        "maxProperties": labels.METADATA_PAIRS,
        "propertyNames": _text(1, labels.METADATA_KEY),
        "additionalProperties": {"anyOf": [text, *others]} if others else text,
    }


_FIELDS: Schema = {name: or_null(field.schema) for name, field in FIELDS.items()}
_LENGTH: Schema = or_null({"type": "integer", "minimum": 1})
_GENERATION: Schema = _FIELDS | dict.fromkeys(LENGTHS, _LENGTH)
_IMAGE: Schema = only("url", url={"type": "string", "pattern": "^data:image/"}, detail=STRING)
_PART: Schema = {
    "oneOf": [
        only("type", "text", type={"const": "text"}, text=STRING),
        only("type", "image_url", type={"const": "image_url"}, image_url=_IMAGE),
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

CHAT: Schema = one("model", "messages", model=_MODEL, messages=_MESSAGES, **_GENERATION)
TEXT: Schema = one("model", "prompt", model=_MODEL, prompt=_INPUTS, **_FIELDS, max_tokens=_LENGTH)
EMBEDDINGS: Schema = one("model", "input", model=_MODEL, input=_INPUTS)
_RESPONSE_INPUT: Schema = {"oneOf": [TEXT_VALUE, {"type": "array", "minItems": 1, "items": OBJECT}]}
RESPONSES: Schema = one(
    "model",
    "input",
    model=_MODEL,
    input=_RESPONSE_INPUT,
    max_output_tokens=_LENGTH,
    stream=_FIELDS["stream"],
)
_ITEMS: Schema = {
    "type": "array",
    "maxItems": 20,
    "items": {"type": "object", "properties": {"type": or_null({"enum": [*TEXT_ITEM_TYPES]})}},
}
CONVERSATION: Schema = {"type": "object", "properties": {"items": or_null(_ITEMS), "metadata": or_null(pairs())}}
CONVERSATION_CHANGE: Schema = one("metadata", metadata=or_null(pairs()))
CONVERSATION_ITEMS: Schema = one("items", items={**_ITEMS, "minItems": 1})
_SUBMIT: Schema = {
    **one("requests", requests={"type": "array", "minItems": 1, "items": ref("Item")}),
    "additionalProperties": False,
}
_POLL: Schema = one("request_id", request_id={"type": "string", "format": "uuid"})
RUN: Schema = {"anyOf": [_SUBMIT, _POLL, ref("Item")]}
_SUBMIT_GENERIC: Schema = {
    **one("model", "requests", model=_MODEL, requests=_SUBMIT["properties"]["requests"]),
    "additionalProperties": False,
}
RUN_GENERIC: Schema = {"anyOf": [_SUBMIT_GENERIC, _POLL, {"allOf": [one("model", model=_MODEL), ref("Item")]}]}
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
        "content": {"application/json": {"schema": pairs({"type": ["number", "boolean"]})}},
        "description": "pairs that subscriptions filter by, JSON",
    },
    {"name": "x-session-affinity", "in": "header", "schema": STRING, "description": "keeps a session at one engine"},
]
_SWITCH: Schema = {"enum": ["", *SWITCH]}
STRICT: list[Schema] = [
    {"name": "strict", "in": "query", "schema": _SWITCH, "description": "true: a field that is not known is refused"},
    {"name": "x-slackwater-strict", "in": "header", "schema": _SWITCH, "description": "the same"},
]
_PURPOSE: Schema = {"enum": [PURPOSE, *UNREAD_PURPOSES]}
FILE_UPLOAD: Schema = one("purpose", "file", purpose=_PURPOSE, file={"type": "string", "format": "binary"})
_EXPIRY: Schema = one(
    "anchor", "seconds", anchor={"const": "created_at"}, seconds={"type": "integer", **declared(3600, 30 * 86_400)}
)
_FILE_BATCH: Schema = one(
    "endpoint",
    "completion_window",
    input_file_id=or_null(_text(0, LONGEST)),
    endpoint={"enum": [*ROUTES]},
    completion_window={
        "type": "string",
        "pattern": f"{WINDOW}|^{NO_DEADLINE}$",
        "description": f"24h, 30m, 7d, or {NO_DEADLINE} for no deadline",
    },
    metadata=or_null(pairs()),
    idempotency_key=or_null({"type": "string", "maxLength": 255, "pattern": KEY}),
    requests={
        "type": ["array", "null"],
        "minItems": 1,
        "description": "lines, in place of input_file_id",
        "items": {"type": "object"},
    },
    mixed={"type": ["boolean", "null"], "description": "lines may name several models and endpoints"},
    validation={"enum": ["strict", "lenient", None], "description": "lenient: a bad line fails alone"},
    depends_on={
        "type": ["array", "null"],
        "items": {"type": "string"},
        "maxItems": 64,
        "description": "batches that must have ended before it starts, however they end",
    },
    then={"type": ["array", "null"], "items": OBJECT, "description": "stages that follow it, as those of a pipeline"},
    partial_results={"type": ["boolean", "null"], "description": "the output file can be read while the batch runs"},
    output_expires_after=or_null(_EXPIRY),
)
_NULL: Schema = {"type": "null"}
_OF_FILE: Schema = {"required": ["input_file_id"], "properties": {"input_file_id": STRING, "requests": _NULL}}
_OF_REQUESTS: Schema = {
    "required": ["requests"],
    "properties": {"requests": {"type": "array"}, "input_file_id": {"enum": ["", None]}},
}
FILE_BATCH: Schema = _FILE_BATCH | {"oneOf": [_OF_FILE, _OF_REQUESTS]}
_STAGE: Schema = {
    **one("id", id={"type": "string", "pattern": "^[a-z][a-z0-9_-]{0,31}$"}),
    "description": "a request, a pick or a question to the outside; docs/pipelines.md describes every field",
}
PIPELINE: Schema = only(
    "input",
    "stages",
    name=or_null(_text(1, 100)),
    input={**OBJECT, "description": "file_id, items or batch"},
    stages={"type": "array", "minItems": 1, "maxItems": 16, "items": _STAGE},
    completion_window=or_null({"type": "string", "pattern": WINDOW}),
    budget=or_null(only("usd", usd={"type": "number", "exclusiveMinimum": 0})),
    limit=or_null({"type": "integer", "minimum": 1}),
)
UPLOAD: Schema = one(
    "filename",
    "purpose",
    "bytes",
    filename=_text(1, names.LONGEST),
    purpose=_PURPOSE,
    bytes={"type": "integer", "minimum": 1},
    mime_type=STRING,
    expires_after=or_null(_EXPIRY),
)
POLICY_TEST: Schema = only(
    "policy",
    policy={"type": "string", "maxLength": 1000, "description": "a policy in TOML"},
    last={"type": "string", "pattern": "^([1-9][0-9]{0,2}[smh]|[1-9]d|[12][0-9]d)$"},
)
UPLOAD_PART: Schema = one("data", data={"type": "string", "format": "binary"})
UPLOAD_PARTS: Schema = one("part_ids", part_ids={"type": "array", "minItems": 1, "items": STRING}, md5=STRING)
OUTSIDE_ANSWER: Schema = one("answer", answer={})

COMPONENTS: dict[str, Schema] = {
    "Message": one(
        "role",
        role=ROLE,
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
            "contexts": {"type": "array", "minItems": 1, "items": one("text", text=TEXT_VALUE)},
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
    "Success": one(
        "result",
        "success",
        "errors",
        "messages",
        result={"description": "what was asked for"},
        success={"type": "boolean"},
        errors={"type": "array", "items": ref("Problem")},
        messages={"type": "array"},
    ),
    "Error": one(
        "result",
        "success",
        "errors",
        "messages",
        result={"type": ["null", "object"]},
        success={"const": False},
        errors={"type": "array", "minItems": 1, "items": ref("Problem")},
        messages={"type": "array"},
        error=one(
            "message",
            "type",
            message=STRING,
            type=STRING,
            param={"type": ["string", "null"]},
            code={"type": ["string", "null"]},
        ),
    ),
    "Problem": one("code", "message", code={"type": "integer"}, message=STRING),
}
