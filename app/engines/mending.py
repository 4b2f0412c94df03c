"""Reads answers that are complete but not quite what they should be, and marks what was mended. Pure.

A lone surrogate, a byte that is not UTF-8, NaN and Infinity are no JSON, although some engines send them: computed again, the
same would come. They are replaced. Tokens that the engine did not count are estimated.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from app.engines.json_text import JsonText

MARK = "slackwater"  # the field of a mended answer: {"repaired": [what was mended, …]}
BYTES_PER_TOKEN = 4
NO_USAGE = "no usage: tokens are estimated"
_TEXT = "characters that are not valid were replaced"
_FORM = "what is not quite JSON was written again"  # a byte order mark, control characters in a text
_NUMBERS = "numbers that are not finite became null"
_DEEPEST = 254  # lists and objects in each other that orjson writes; it reads more
_LARGEST = 2**63  # half of what orjson writes
_FINITE = 10**300
_WRITTEN = ("content", "text", "reasoning", "reasoning_content", "refusal", "arguments", "name")


class TooDeep(ValueError):
    """A value is nested so deeply that it cannot be written again."""

    def __init__(self) -> None:
        super().__init__("the engine's answer is nested too deeply")


def read(body: bytes) -> tuple[Any, list[str]]:
    """The value of JSON, and what was mended in it. Raises ValueError if it is none, or not all of it; TooDeep."""
    try:
        value, mended = _read(body)
        if body.count(b"[") + body.count(b"{") > _DEEPEST:
            orjson.dumps(value)
    except (RecursionError, orjson.JSONEncodeError):
        raise TooDeep from None
    return value, mended


def _read(body: bytes) -> tuple[Any, list[str]]:
    try:
        return orjson.loads(body), []
    except orjson.JSONDecodeError:
        pass
    mended: dict[str, None] = {}
    text = body.decode("utf-8-sig", errors="replace")
    if "\N{REPLACEMENT CHARACTER}" in text:
        mended[_TEXT] = None
    value = _mended(json.loads(text, strict=False), mended)
    return value, list(mended) or [_FORM]


def marked(answer: bytes, mended: list[str]) -> bytes:
    """The answer, which says what was mended."""
    return bytes(JsonText(answer).set({MARK: {"repaired": mended}}))


def estimated_usage(answer: Mapping[str, Any], prompt_tokens: int) -> dict[str, int]:
    """The `usage` of an answer that has none. Embeddings have no tokens of output."""
    if isinstance(answer.get("data"), list):
        return {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens}
    written = sum(len(text.encode()) for name in ("choices", "output") for text in _texts(answer.get(name)))
    output = math.ceil(written / BYTES_PER_TOKEN)
    prompt, answered = (
        ("input_tokens", "output_tokens") if "output" in answer else ("prompt_tokens", "completion_tokens")
    )
    return {prompt: prompt_tokens, answered: output, "total_tokens": prompt_tokens + output}


def prompt_estimate(body: bytes) -> int:
    """An estimate of the prompt tokens of a request body."""
    return max(1, len(body) // BYTES_PER_TOKEN)


def _texts(value: object, name: str = "") -> Iterator[str]:
    """The strings that the model has written."""
    if isinstance(value, str):
        if name in _WRITTEN:
            yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, name)


def _mended(value: Any, mended: dict[str, None]) -> Any:
    if isinstance(value, list):
        return [_mended(inner, mended) for inner in value]
    if isinstance(value, dict):
        return {_mended(key, mended): _mended(inner, mended) for key, inner in value.items()}
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        mended[_TEXT] = None
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, int) and not -_LARGEST <= value < 2 * _LARGEST:
        value = float(value) if abs(value) < _FINITE else math.inf
    if isinstance(value, float) and not math.isfinite(value):
        mended[_NUMBERS] = None
        return None
    return value
