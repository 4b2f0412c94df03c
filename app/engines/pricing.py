"""Computes the cost of tokens from the catalogue's prices, and adds it to a usage as `cost` and `currency`. Pure.

A model without a price has no cost, which differs from a cost of 0.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from app.engines.catalogue import Price
from app.engines.json_text import JsonText
from app.engines.outcome import Usage, usage_of

_MILLION = 1_000_000


@lru_cache(4096)
def cost(price: Price, usage: Usage) -> float:
    """The cost in the price's currency. Cached tokens are part of the prompt tokens and have their own price."""
    fresh = max(0, usage.prompt_tokens - usage.cached_tokens)
    cached = usage.prompt_tokens - fresh
    whole = fresh * price.input + cached * price.cached_input + usage.completion_tokens * price.output
    return float(round(whole / _MILLION, 12))


def cost_fields(usage: Mapping[str, Any] | None, price: Price | None) -> dict[str, Any]:
    """What the `usage` object of an answer of any route gets if there is a price: `cost` and `currency`."""
    counted = None if price is None else usage_of({"usage": usage})
    return {} if price is None or counted is None else {"cost": cost(price, counted), "currency": price.currency}


def with_cost(usage: Mapping[str, Any], price: Price | None) -> dict[str, Any]:
    """The `usage` object with these fields."""
    return {**usage, **cost_fields(usage, price)}


def priced(answer: bytes, price: Price | None, more: Mapping[str, Any] | None = None) -> bytes:
    """An engine's whole answer with its cost and the fields of `more`, in which no other byte differs."""
    if price is None and not more:
        return answer
    text = JsonText(answer)
    if fields := cost_fields(orjson.loads(text.get("usage") or b"null"), price):
        text.set(fields, "usage")
    return bytes(text.set(more) if more else text)
