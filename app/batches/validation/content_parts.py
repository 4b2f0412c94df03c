"""What a part of a message's content may be: text, or an image inside the body for a model that sees. Pure."""

from typing import Any, NamedTuple

from app.batches.validation.fields import show
from app.engines.content_parts import IMAGES, KEYS, OF_URL

REMOTE_MEDIA = "remote and file media are refused; send the image as a data:image/…;base64 URL"


class Flaw(NamedTuple):
    """What is wrong with a part. `path`: where in it, empty for the part itself."""

    path: str
    message: str


def flaw(part: Any, kinds: tuple[str, ...], *, vision: bool) -> Flaw | None:
    """Why a part that may be of these kinds is refused; None: it is not. `vision`: the model takes images."""
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind not in kinds:
        return Flaw("", f"must be a part of type {', '.join(kinds[:-1])} or {kinds[-1]}, got {show(kind or part)}")
    if (foreign := _foreign(part, KEYS[kind])) is not None:
        return Flaw(f".{foreign}", f"is no field of a part of type {kind}; remove it")
    if kind in IMAGES:
        return _image_flaw(part) if vision else Flaw("", "this model does not take images")
    name = "refusal" if kind == "refusal" else "text"
    if not isinstance(part.get(name), str):
        return Flaw(f".{name}", f"must be a string, got {show(part.get(name))}")
    return None


def _image_flaw(part: dict[str, Any]) -> Flaw | None:
    image = part.get("image_url")
    if isinstance(image, dict):
        if (foreign := _foreign(image, OF_URL)) is not None:
            return Flaw(f".image_url.{foreign}", "is no field of an image_url; remove it")
        image = image.get("url")
    if not isinstance(image, str) or not image.startswith("data:image/"):
        return Flaw(".image_url", REMOTE_MEDIA)
    return None


def _foreign(given: dict[str, Any], keys: frozenset[str]) -> str | None:
    return next((key for key in given if key not in keys), None)
