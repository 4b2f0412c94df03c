"""An engine's answer as the `result` of Workers AI. Pure.

Older text models answer `{"response", "tool_calls", "usage"}` ("native"), newer ones a whole chat completion ("openai").
The queue stores the engine's answer; the shape is made when it is read.
"""

from typing import Any, Literal

import orjson

from app.engines.catalogue import Price
from app.engines.pricing import priced, with_cost


def as_result(
    body: bytes, shape: Literal["native", "openai"], price: Price | None = None, *, wants_json: bool = False
) -> bytes:
    """The JSON of an item's or a synchronous call's `result`. In JSON mode a native `response` is an object, not text."""
    if shape == "openai":
        return priced(body, price)
    result = native(orjson.loads(body), wants_json=wants_json)
    if "usage" in result:
        result["usage"] = with_cost(result["usage"], price)
    return orjson.dumps(result)


def native(completion: dict[str, Any], *, wants_json: bool = False) -> dict[str, Any]:
    """A chat or text completion in the native shape; what is absent there is absent here."""
    choice = completion["choices"][0]
    message = choice.get("message") or {}
    text = message.get("content", choice.get("text")) or ""
    result: dict[str, Any] = {"response": _parsed(text) if wants_json else text}
    calls = message.get("tool_calls") or []
    if calls:
        result["tool_calls"] = [
            {"name": call["function"]["name"], "arguments": _parsed(call["function"]["arguments"])} for call in calls
        ]
    if completion.get("usage"):
        result["usage"] = completion["usage"]
    return result


def _parsed(text: str) -> Any:
    """The JSON value, or the text itself where it was cut short."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
