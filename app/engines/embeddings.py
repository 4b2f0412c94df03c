"""Converts Workers AI's embedding items to `/v1/embeddings` requests, and the answers back. Pure.

    {"text": …}                      {"shape": [n, d], "data": [[…]], "pooling": …}
    {"contexts": [{"text": …}]}      {"response": [[…]], "shape": [n, d], "pooling": …}
    {"query": …, "contexts": […]}    {"response": [{"id", "score"}]}   (score: the cosine of query and context)

These forms are from Cloudflare's published types of its bge models. The item decides the form of the answer.
"""

import math
import re
from array import array
from base64 import b64encode
from collections.abc import Mapping, Sequence
from operator import mul
from typing import Any

import orjson

from app.engines.catalogue import Price
from app.engines.mending import MARK
from app.engines.pricing import with_cost

NATIVE_FORMS = ("text", "query", "contexts")
_NUMBERS = re.compile(rb'"embedding"\s*:\s*\[')  # a vector that is not in base64
_FORMS = (*NATIVE_FORMS, "truncate_inputs", "pooling")


def engine_body(item: Mapping[str, Any], *, truncates: bool = True) -> dict[str, Any]:
    """The item with OpenAI's `input`: the text or texts, or the query (if there is one) followed by the contexts.

    An item in OpenAI's form is not changed. `truncates`: the engine can truncate to its limit (vLLM's field).
    """
    if not is_native(item):
        return dict(item)
    body = {key: value for key, value in item.items() if key not in _FORMS}
    body |= {"input": _inputs(item), "encoding_format": "float"}
    if item.get("truncate_inputs") and truncates:
        body["truncate_prompt_tokens"] = -1  # vLLM: truncate to the model's limit
    return body


def is_native(item: Mapping[str, Any]) -> bool:
    """Whether the item has one of the Workers AI forms."""
    return item.get("text") is not None or item.get("contexts") is not None


def wants_base64(item: Mapping[str, Any]) -> bool:
    """Whether the vectors of the item are to be in base64."""
    return item.get("encoding_format") == "base64" and not is_native(item)


def in_base64(answer: bytes) -> bytes:
    """OpenAI's answer with each vector in base64. Not every engine knows `encoding_format`.

    OpenAI's clients ask for base64 unless told otherwise, and the one for Node makes a shorter, wrong vector of numbers.
    """
    if not _NUMBERS.search(answer):
        return answer
    whole = orjson.loads(answer)
    for entry in whole["data"]:
        if isinstance(vector := entry["embedding"], list):
            packed = array("f", (math.nan if number is None else number for number in vector))
            entry["embedding"] = b64encode(packed.tobytes()).decode()
    return orjson.dumps(whole)


def as_result(answer: bytes, item: Mapping[str, Any], pooling: str, price: Price | None = None) -> bytes:
    """The JSON `result` of an item or a synchronous call, with the engine's usage. `pooling`: the engine's pooling method."""
    whole = orjson.loads(answer)
    vectors = [entry["embedding"] for entry in sorted(whole["data"], key=lambda entry: entry.get("index") or 0)]
    result: dict[str, Any]
    if item.get("contexts") is None:
        result = {"shape": _shape(vectors), "data": vectors, "pooling": pooling}
    elif item.get("query") is None:
        result = {"response": vectors, "shape": _shape(vectors), "pooling": pooling}
    else:
        query, *contexts = vectors
        scores = [{"id": i, "score": cosine(query, context)} for i, context in enumerate(contexts)]
        result = {"response": scores}
    if whole.get("usage"):
        result["usage"] = with_cost(whole["usage"], price)
    if MARK in whole:
        result[MARK] = whole[MARK]
    return orjson.dumps(result)


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of the angle between two vectors; 0 if one of them is zero."""
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(map(mul, one, other)) / lengths if lengths else 0.0


def _inputs(item: Mapping[str, Any]) -> str | list[str]:
    if item.get("text") is not None:
        text: str | list[str] = item["text"]
        return text
    contexts = [context["text"] for context in item["contexts"]]
    return contexts if item.get("query") is None else [item["query"], *contexts]


def _shape(vectors: Sequence[Sequence[float]]) -> list[int]:
    return [len(vectors), len(vectors[0])]
