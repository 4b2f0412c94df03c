"""Converts an engine's answer to the `result` of Workers AI. Pure.

Older text models answer with `{"response", "tool_calls", "usage"}` ("native"), newer ones with a whole chat completion
("openai"), and models with the Responses API in the form of the request ("responses"). The queue stores the engine's
answer; it is converted when it is read.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from app.engines.catalogue import Price, Shape
from app.engines.json_text import JsonText
from app.engines.mending import MARK
from app.engines.pricing import priced


def as_result(body: bytes, shape: Shape, price: Price | None = None, *, wants_json: bool = False) -> bytes:
    """The JSON `result` of an item or a synchronous call. In JSON mode a native `response` is an object, not text.

    An answer that does not fit the native shape (several choices, a response) is not converted.
    """
    if shape != "native":
        return priced(body, price)
    answer = orjson.loads(body)
    if len(answer.get("choices") or ()) != 1:
        return priced(body, price)
    result = native(answer, wants_json=wants_json)
    if "usage" in result:
        result["usage"] = orjson.Fragment(JsonText(priced(body, price)).get("usage") or b"null")
    return orjson.dumps(result)


def native(completion: dict[str, Any], *, wants_json: bool = False) -> dict[str, Any]:
    """A chat or text completion in the native shape. Missing fields stay missing."""
    choice = completion["choices"][0]
    message = choice.get("message") or {}
    text = message.get("content", choice.get("text")) or ""  # Cloudflare's types have no null there
    result: dict[str, Any] = {"response": _parsed(text) if wants_json else text}
    calls = message.get("tool_calls") or []
    if calls:
        functions = [call.get("function") or {} for call in calls]
        result["tool_calls"] = [
            {"name": function.get("name"), "arguments": _parsed(function.get("arguments") or "")}
            for function in functions
        ]
    if message.get("refusal"):
        result["refusal"] = message["refusal"]
    if completion.get("usage"):
        result["usage"] = completion["usage"]
    if MARK in completion:
        result[MARK] = completion[MARK]
    return result


def answer_in(result: Mapping[str, Any]) -> Any:
    """The answer in a `result` of any shape: its text, a value in JSON mode, or None if it only calls tools."""
    if "choices" in result:
        choice = result["choices"][0]
        return choice["message"].get("content") if "message" in choice else choice["text"]
    if "output" in result:
        parts = [part for item in result["output"] if item["type"] == "message" for part in item["content"]]
        return "".join(part.get("text", "") for part in parts) or None
    return result.get("response")


def _parsed(text: str) -> Any:
    """The JSON value in its own spelling, or the text itself if it is incomplete JSON."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return orjson.Fragment(text)
