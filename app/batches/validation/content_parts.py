"""The rules for a part of a message's content: text, or an image inside the body for a vision model. Pure."""

from collections.abc import Collection
from typing import Any, NamedTuple

from app.batches.validation.fields import show
from app.engines import media_urls
from app.engines.content_parts import IMAGES, KEYS, OF_URL
from app.openai_codes import OpenAICode

REMOTE_MEDIA = "remote and file media are refused; send the image as a data:image/…;base64 URL"


class PartProblem(NamedTuple):
    """The problem of a part. `path`: its place in the part, empty for the part itself. `reason`: OpenAI's code."""

    path: str
    message: str
    reason: OpenAICode | None = None


def part_problem(part: Any, kinds: tuple[str, ...], *, vision: bool, hosts: Collection[str] = ()) -> PartProblem | None:
    """The problem of a part that must have one of these types; None: it is valid. `vision`: the model accepts images; `hosts`: of
    remote ones.
    """
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind not in kinds:
        return _kind_problem(part, kinds)
    if (unknown := _unknown_key(part, KEYS[kind])) is not None:
        return PartProblem(f".{unknown}", f"is not a field of a part of type {kind}; remove it")
    if kind in IMAGES:
        return _image_problem(part, hosts) if vision else PartProblem("", "this model does not accept images")
    return _text_problem(part, "refusal" if kind == "refusal" else "text")


def _kind_problem(part: Any, kinds: tuple[str, ...]) -> PartProblem:
    known = f"{', '.join(kinds[:-1])} or {kinds[-1]}"
    if isinstance(part, dict) and "type" not in part:
        return PartProblem(".type", f"is missing; it must be {known}", OpenAICode.MISSING)
    return PartProblem(
        "", f"must be a part of type {known}, got {show((isinstance(part, dict) and part['type']) or part)}"
    )


def _text_problem(part: dict[str, Any], name: str) -> PartProblem | None:
    if name not in part:
        return PartProblem(f".{name}", "is missing; it must be a string", OpenAICode.MISSING)
    if not isinstance(part[name], str):
        return PartProblem(f".{name}", f"must be a string, got {show(part[name])}")
    return None


def _image_problem(part: dict[str, Any], hosts: Collection[str]) -> PartProblem | None:
    if "image_url" not in part:
        return PartProblem(".image_url", "is missing; it must be a URL, or an object with url", OpenAICode.MISSING)
    image = part["image_url"]
    if isinstance(image, dict):
        if (unknown := _unknown_key(image, OF_URL)) is not None:
            return PartProblem(f".image_url.{unknown}", "is not a field of an image_url; remove it")
        image = image.get("url")
    if (isinstance(image, str) and image.startswith("data:image/")) or media_urls.host_of(image) in hosts:
        return None
    return PartProblem(".image_url", _of_hosts(hosts) if hosts else REMOTE_MEDIA)


def _of_hosts(hosts: Collection[str]) -> str:
    return f"must be a data:image/…;base64 URL, or an https URL of {' or '.join(sorted(hosts))} without user and port"


def _unknown_key(given: dict[str, Any], keys: frozenset[str]) -> str | None:
    return next((key for key in given if key not in keys), None)
