"""The content parts of messages, and the keys that each kind of part may have. Pure.

If a part has a `uuid` or no type, vLLM uses its other keys, so that a text part can be an image. Therefore a part is sent to
an engine only with the keys of its kind.
"""

from collections.abc import Mapping
from typing import Any

IMAGES = ("image_url", "input_image")
KEYS: Mapping[str, frozenset[str]] = {
    "text": frozenset({"type", "text"}),
    "image_url": frozenset({"type", "image_url"}),
    # parts of the Responses API
    "input_text": frozenset({"type", "text"}),
    "input_image": frozenset({"type", "image_url", "detail"}),
    "output_text": frozenset({"type", "text", "annotations", "logprobs"}),
    "refusal": frozenset({"type", "refusal"}),
    "reasoning_text": frozenset({"type", "text"}),
    "summary_text": frozenset({"type", "text"}),
}
OF_CHAT = ("text", "image_url")
OF_URL = frozenset({"url", "detail"})  # keys of an image's URL in a chat


def text_of(content: Any) -> str:
    """The text of a message's content, of which an answer may have parts, too. Raises TypeError if there is more than text."""
    if isinstance(content, list):
        return "".join(map(_text, content))
    if not isinstance(content, str | None):
        raise TypeError(f"no text: {content!r:.80}")
    return content or ""


def _text(part: Any) -> str:
    if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
        raise TypeError(f"no part of a text: {part!r:.80}")
    return str(part["text"])


def rebuilt(part: Any) -> Any:
    """A part of a chat with only the keys of its kind. A bare image URL is put into an object, as vLLM requires."""
    if not isinstance(part, Mapping) or part.get("type") not in OF_CHAT:
        return part
    kept = {key: part[key] for key in KEYS[part["type"]] if key in part}
    if isinstance(kept.get("image_url"), str):
        kept["image_url"] = {"url": kept["image_url"]}
    return kept
