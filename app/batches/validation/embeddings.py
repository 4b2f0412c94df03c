"""The rules for an item for an embedding model on the Workers AI routes, synchronous or queued. Pure.

Forms: Cloudflare's published input types of its bge models (`app/engines/embeddings.py` lists them).
"""

from collections.abc import Sequence
from typing import Any

from app.batches.validation.fields import show
from app.batches.validation.text_generation import (
    MOST_BYTES_PER_TOKEN,
    USUAL_BYTES_PER_TOKEN,
    ItemError,
    ItemFacts,
    ItemRules,
    check_fields,
)
from app.openai_codes import OpenAICode

MOST_INPUTS = 2048  # OpenAI's limit; Cloudflare's is 100
_OTHER_TASKS_FIELDS = ("prompt", "messages", "input")


def examine(item: Any, rules: ItemRules) -> ItemFacts:
    """Check an item against all rules. Raises ItemError for the first violation."""
    check_fields(item, rules)
    for name in _OTHER_TASKS_FIELDS:
        if item.get(name) is not None:
            raise ItemError(name, "this model makes embeddings; send text, or contexts with or without a query")
    if item.get("stream"):
        raise ItemError("stream", "embeddings cannot be streamed; leave it out")
    if not isinstance(item.get("truncate_inputs") or False, bool):
        raise ItemError("truncate_inputs", f"must be true or false, got {show(item['truncate_inputs'])}")
    if item.get("pooling") not in (None, rules.pooling):
        raise ItemError("pooling", f"this model pools by {rules.pooling}, got {show(item['pooling'])}; leave it out")
    tokens = 0
    for place, text in _inputs(item):
        size = _size(place, text)
        least = size // MOST_BYTES_PER_TOKEN
        if least > rules.context_window and not item.get("truncate_inputs"):
            too_long = f"has at least {least} tokens, beyond the context window of {rules.context_window}"
            raise ItemError(place, f"{too_long}; shorten it or set truncate_inputs", OpenAICode.TOO_LONG)
        tokens += min(size // USUAL_BYTES_PER_TOKEN + 1, rules.context_window)
    reference, affinity = item.get("external_reference"), item.get("session_id")
    return ItemFacts(reference, tokens, wants_json=False, affinity=affinity, prefix="", answer_tokens=0, most_tokens=0)


def _inputs(item: dict[str, Any]) -> Sequence[tuple[str, Any]]:
    """Every text of the item with its path. Raises ItemError."""
    text, query, contexts = item.get("text"), item.get("query"), item.get("contexts")
    if text is not None and contexts is None and query is None:
        if not isinstance(text, list):
            return [("text", text)]
        return [(f"text[{i}]", each) for i, each in enumerate(_counted("text", text))]
    if text is not None:
        raise ItemError("text", "cannot be combined with query and contexts; send either")
    if contexts is None:
        if query is not None:
            raise ItemError("contexts", "is missing; send the texts to compare the query with")
        raise ItemError("", "needs text, or contexts with or without a query; neither was sent")
    inputs = [] if query is None else [("query", query)]
    for i, context in enumerate(_counted("contexts", contexts)):
        if not isinstance(context, dict):
            raise ItemError(f"contexts[{i}]", f"must be an object with text, got {show(context)}")
        inputs.append((f"contexts[{i}].text", context.get("text")))
    return inputs


def _counted(name: str, values: Any) -> list[Any]:
    if not isinstance(values, list) or not 1 <= len(values) <= MOST_INPUTS:
        got = f"{len(values)} of them" if isinstance(values, list) else show(values)
        raise ItemError(name, f"must be a list of 1 to {MOST_INPUTS}, got {got}")
    return values


def _size(place: str, text: Any) -> int:
    """The size of one text in bytes. Raises ItemError."""
    if not isinstance(text, str) or not text:
        raise ItemError(place, f"must be a non-empty string, got {show(text)}")
    return len(text.encode())
