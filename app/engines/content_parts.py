"""The parts that a message's content is made of: the keys that each kind has. Pure.

vLLM goes by a part's other keys where it has a `uuid` or no type: a text can be an image. So an engine is sent no key that the
kind does not have.
"""

from collections.abc import Mapping
from typing import Any

IMAGES = ("image_url", "input_image")
KEYS: Mapping[str, frozenset[str]] = {
    "text": frozenset({"type", "text"}),
    "image_url": frozenset({"type", "image_url"}),
    # of the Responses API
    "input_text": frozenset({"type", "text"}),
    "input_image": frozenset({"type", "image_url", "detail"}),
    "output_text": frozenset({"type", "text", "annotations", "logprobs"}),
    "refusal": frozenset({"type", "refusal"}),
    "reasoning_text": frozenset({"type", "text"}),
    "summary_text": frozenset({"type", "text"}),
}
OF_CHAT = ("text", "image_url")
OF_URL = frozenset({"url", "detail"})  # an image's address in a chat


def rebuilt(part: Any) -> Any:
    """A part of a chat with the keys of its kind alone, a bare URL in an object as vLLM wants it."""
    if not isinstance(part, Mapping) or part.get("type") not in OF_CHAT:
        return part
    kept = {key: part[key] for key in KEYS[part["type"]] if key in part}
    if isinstance(kept.get("image_url"), str):
        kept["image_url"] = {"url": kept["image_url"]}
    return kept
