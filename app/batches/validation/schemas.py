"""JSON Schemas of a model's input and output on the Workers AI routes. Pure.

Inputs use the rules that `text_generation` and `embeddings` check, and a schema accepts what they accept. They also check
rules that no schema can express: whether a prompt fits into the context window, and the fields that only the operator may set.
"""

from typing import Any

from app.batches.validation.embeddings import MOST_INPUTS
from app.batches.validation.fields import FIELDS
from app.batches.validation.openai import EFFORTS
from app.batches.validation.text_generation import LENGTHS
from app.batches.validation.text_generation import ROLE as ROLE_PATTERN
from app.engines.catalogue import Model, Shape
from app.engines.content_parts import KEYS, OF_CHAT

Schema = dict[str, Any]
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TEXT: Schema = {"type": "string", "minLength": 1}
ROLE: Schema = {"type": "string", "pattern": f"^{ROLE_PATTERN.pattern}$"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_USAGE: Schema = {
    "type": "object",
    "properties": {
        "prompt_tokens": _COUNT,
        "completion_tokens": _COUNT,
        "total_tokens": _COUNT,
        "prompt_tokens_details": {"type": ["object", "null"], "properties": {"cached_tokens": _COUNT}},
    },
}
_CALL: Schema = {"type": "object", "required": ["name", "arguments"], "properties": {"name": {"type": "string"}}}
_NATIVE: Schema = {
    "type": "object",
    "properties": {
        "response": {"description": "text; in JSON mode its value"},
        "tool_calls": {"type": "array", "items": _CALL},
        "refusal": {"description": "why calls of forbidden tools were withheld", "type": "string"},
        "usage": _USAGE,
    },
    "required": ["response"],
}
_CHOICE: Schema = {
    "type": "object",
    "properties": {
        "index": _COUNT,
        "message": {
            "type": "object",
            "properties": {"role": {"type": "string"}, "content": {"type": ["string", "null"]}},
        },
        "text": {"type": "string"},
        "finish_reason": {"type": ["string", "null"]},
    },
    "required": ["index"],
}
_OPENAI: Schema = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "object": {"enum": ["chat.completion", "text_completion"]},
        "created": {"type": "integer"},
        "model": {"type": "string"},
        "choices": {"type": "array", "minItems": 1, "items": _CHOICE},
        "usage": _USAGE,
    },
    "required": ["choices", "usage"],
}
_RESPONSE: Schema = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "response"},
        "status": {"enum": ["completed", "incomplete"]},
        "output": {"type": "array", "minItems": 1, "items": {"type": "object"}},
        "usage": {"type": "object"},
    },
    "required": ["output", "usage"],
}
_OUTPUTS: dict[Shape, Schema] = {
    "native": _NATIVE,
    "openai": _OPENAI,
    "responses": {"description": "in the form of the request: for input a response", "anyOf": [_OPENAI, _RESPONSE]},
}
_RESPONSE_FIELDS: Schema = {
    "input": {"anyOf": [_TEXT, {"type": "array", "minItems": 1}]},
    "instructions": {"type": "string"},
    "reasoning": {"type": "object", "properties": {"effort": {"enum": [*EFFORTS, None]}}},
    "max_output_tokens": {"type": "integer", "minimum": 1},
}


def input_schema(model: Model) -> Schema:
    """The schema of the body of a synchronous call, or of an item of a queued batch (which cannot stream)."""
    if model.task == "text-embeddings":
        own, forms = _embedding_fields(model), _EMBEDDING_FORMS
    else:
        own, forms = _generation_fields(model), _GENERATION_FORMS
        if model.shape == "responses":
            own, forms = own | _RESPONSE_FIELDS, _RESPONSE_FORMS
    names = {"model": {"enum": [model.name, *model.aliases]}}
    fields = {name: field.schema for name, field in FIELDS.items()} | own | names
    properties = {name: {"anyOf": [schema, {"type": "null"}]} for name, schema in fields.items()}
    return {"$schema": _DRAFT, "type": "object", "properties": properties, "oneOf": forms}


def output_schema(model: Model) -> Schema:
    """The schema of `result`, also in a batch."""
    if model.task == "text-embeddings":
        return {"$schema": _DRAFT, **_embedding_output(model)}
    return {"$schema": _DRAFT, **_OUTPUTS[model.shape]}


def _given(name: str, *absent: str) -> Schema:
    """`name` has a value, and none of `absent` has one."""
    nothing = {other: {"type": "null"} for other in absent}
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}, **nothing}}


_GENERATION_FORMS = [_given("prompt", "messages"), _given("messages", "prompt")]
_RESPONSE_FORMS = [
    _given("prompt", "messages", "input"),
    _given("messages", "prompt", "input"),
    _given("input", "prompt", "messages"),
]
_EMBEDDING_FORMS = [_given("text", "query", "contexts"), _given("contexts", "text")]


def _generation_fields(model: Model) -> Schema:
    kinds = OF_CHAT if "vision" in model.capabilities else OF_CHAT[:1]
    part = {"oneOf": [_part(kind) for kind in kinds]}
    content = {"anyOf": [{"type": ["string", "null"]}, {"type": "array", "items": part}]}
    properties = {"role": ROLE, "content": content}
    message = {"type": "object", "required": ["role"], "properties": properties}
    length = {"type": "integer", "minimum": 1, "maximum": model.context_window}
    messages = {"type": "array", "minItems": 1, "items": message}
    default = {"default": min(model.default_max_tokens, model.context_window)}
    lengths: Schema = dict.fromkeys(LENGTHS, length) | {LENGTHS[0]: length | default}
    return {"prompt": _TEXT, "messages": messages, **lengths}


def _part(kind: str) -> Schema:
    fields: Schema = {"type": {"const": kind}, "text": {"type": "string"}, "image_url": {"type": ["string", "object"]}}
    keys = sorted(KEYS[kind])
    return {
        "type": "object",
        "required": keys,
        "properties": {key: fields[key] for key in keys},
        "additionalProperties": False,
    }


def _embedding_fields(model: Model) -> Schema:
    many = {"type": "array", "minItems": 1, "maxItems": MOST_INPUTS}
    context = {"type": "object", "required": ["text"], "properties": {"text": _TEXT}}
    return {
        "text": {"anyOf": [_TEXT, many | {"items": _TEXT}]},
        "query": _TEXT,
        "contexts": many | {"items": context},
        "truncate_inputs": {"type": "boolean", "default": False},
        "pooling": {"enum": [model.pooling]},
        "stream": {"const": False},
    }


def _embedding_output(model: Model) -> Schema:
    vectors = {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}
    more = {
        "shape": {"type": "array", "items": _COUNT, "minItems": 2, "maxItems": 2},
        "pooling": {"const": model.pooling},
        "usage": _USAGE,
    }
    score = {"type": "object", "required": ["id", "score"], "properties": {"id": _COUNT, "score": {"type": "number"}}}
    forms = [
        {"required": ["data", "shape", "pooling"], "properties": {"data": vectors, **more}},
        {"required": ["response", "shape", "pooling"], "properties": {"response": vectors, **more}},
        {"required": ["response"], "properties": {"response": {"type": "array", "items": score}, "usage": _USAGE}},
    ]
    return {"type": "object", "oneOf": forms}
