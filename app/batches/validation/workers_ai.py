"""The rules for an item for a text model on the Workers AI routes, synchronous or queued. Pure.

It has a prompt or messages. For a model that Workers AI serves with the Responses API (gpt-oss) it may have `input` instead.
"""

from typing import Any

from app.batches.validation import openai, text_generation
from app.batches.validation.fields import misspelt
from app.batches.validation.text_generation import ItemError, ItemFacts, ItemRules
from app.engines.requests import is_response_request

_FORMS = ("prompt", "messages", "input")


def examine(item: Any, rules: ItemRules) -> ItemFacts:
    """Check an item against all rules. Raises ItemError for the first violation."""
    if not isinstance(item, dict) or (item.get("input") is None and not rules.responses):
        return text_generation.examine(item, rules)
    if is_response_request(item):
        return _response(item, rules)
    sent = [name for name in _FORMS if item.get(name) is not None]
    if rules.responses and len(sent) != 1:
        were = f"{' and '.join(sent)} were sent" if sent else f"none was sent{misspelt(item, _FORMS)}"
        raise ItemError("", f"needs exactly one of prompt, messages and input; {were}")
    return text_generation.examine(item, rules)


def _response(item: dict[str, Any], rules: ItemRules) -> ItemFacts:
    if not rules.responses:
        raise ItemError("input", "this model takes prompt or messages here; send input to …/ai/v1/responses")
    if foreign := next((name for name in text_generation.LENGTHS if item.get(name) is not None), None):
        raise ItemError(foreign, "with input, the limit of the answer is max_output_tokens")
    return openai.response(item, rules)
