"""Computes the cost of tokens from the catalogue's prices, and adds it to a usage as `cost` and `currency`. Pure.

A model without a price has no cost, which differs from a cost of 0.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from app.engines.catalogue import Price
from app.engines.outcome import Usage, usage_of

_MILLION = 1_000_000


@lru_cache(4096)
def cost(price: Price, usage: Usage) -> float:
    """The cost in the price's currency. Cached tokens are part of the prompt tokens and have their own price."""
    fresh = max(0, usage.prompt_tokens - usage.cached_tokens)
    cached = usage.prompt_tokens - fresh
    whole = fresh * price.input + cached * price.cached_input + usage.completion_tokens * price.output
    return float(round(whole / _MILLION, 12))


def with_cost(usage: Mapping[str, Any], price: Price | None) -> dict[str, Any]:
    """The `usage` object of an answer of any route, with its cost if there is a price."""
    counted = usage_of({"usage": dict(usage)})
    if price is None or counted is None:
        return dict(usage)
    return {**usage, "cost": cost(price, counted), "currency": price.currency}


def priced(answer: bytes, price: Price | None, more: Mapping[str, Any] | None = None) -> bytes:
    """An engine's whole answer with its cost and the fields of `more`. Unchanged if there is neither."""
    if price is None and more is None:
        return answer
    body = orjson.loads(answer) | (more or {})
    counted = usage_of(body)
    if price is not None and counted is not None:
        body["usage"].update(cost=cost(price, counted), currency=price.currency)
    return orjson.dumps(body)
