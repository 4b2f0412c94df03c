"""Read a request's body up to a size limit, and determine its media type."""

from collections.abc import AsyncIterator
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from app import off_loop
from app.api.header_texts import HeaderTexts
from app.batches.validation import not_json, strict_json
from app.errors import BadInput, BodyTooLarge, MissingInput
from app.openai_codes import OpenAICode
from app.wrong_values import field_at, wrong

JSON = "application/json"
NDJSON = "application/x-ndjson"
_UNSET = ("", "application/x-www-form-urlencoded", "text/plain")
_CONFIGURATION_MB = 0.0625  # limit of the body that describes a subscription and the like

T = TypeVar("T", bound=BaseModel)


def content_type(request: Request, *known: str) -> str:
    """The media type, one of `known`; JSON and NDJSON if none is given. Raises MissingInput for others and for compressed bodies.

    The media types that `curl -d` sends by default count as JSON, as at Workers AI.
    """
    check_plain(request)
    kind = HeaderTexts(request.headers).get("content-type", "").partition(";")[0].strip().lower()
    known = known or (JSON, NDJSON)
    if kind in known:
        return kind
    if kind in _UNSET:
        return JSON
    raise MissingInput(f"Content-Type must be {' or '.join(known)}, got {kind[:60]!r}", status=415)


def check_plain(request: Request) -> None:
    """Raise MissingInput for a compressed body."""
    encoding = HeaderTexts(request.headers).get("content-encoding", "identity")
    if encoding.strip().lower() not in ("identity", ""):
        raise MissingInput(f"Content-Encoding {encoding!r} is not accepted; send the body uncompressed", status=415)


async def blocks(request: Request, cap_mb: float, refusal: BodyTooLarge | None = None) -> AsyncIterator[bytes]:
    """The body as it arrives. Raises BodyTooLarge, or `refusal`, as soon as the body exceeds the limit."""
    cap = int(cap_mb * 2**20)
    declared = request.headers.get("content-length", "")
    message = f"Request is too large: this body may have at most {cap_mb:g} MB; make it smaller, or send several"
    refusal = refusal or BodyTooLarge(message)
    if declared.isdigit() and int(declared) > cap:
        raise refusal
    size = 0
    async for block in request.stream():
        size += len(block)
        if size > cap:
            raise refusal
        if block:
            yield block


async def read_json(request: Request, cap_mb: float) -> dict[str, Any]:
    """The body as one JSON object, parsed strictly; a large one is parsed in a thread. Raises BadInput, BodyTooLarge."""
    raw = bytearray()
    async for block in blocks(request, cap_mb):
        raw += block
    if not raw.strip():
        raise MissingInput("Request is missing headers or body: the body is empty")
    try:
        value = await off_loop.done(raw, strict_json.loads, bytes(raw))
    except strict_json.NumberUnfit as error:
        raise BadInput(f"{error}", param=error.field) from None
    except strict_json.JsonError as error:
        raise BadInput(f"Bad input: {error}") from None
    if not isinstance(value, dict):
        raise BadInput(f"Bad input: the body must be a JSON object, not {not_json.kind(value)}")
    return value


async def read_model(request: Request, kind: type[T]) -> T:
    """A small JSON body as `kind`. Raises BadInput naming the first invalid field."""
    content_type(request, JSON)
    try:
        return kind.model_validate(await read_json(request, _CONFIGURATION_MB))
    except ValidationError as error:
        first = error.errors()[0]
        place = first["loc"]
        said = wrong(first, secret="secret" in place, of=field_at(kind, place))
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
        reason = OpenAICode.MISSING if first["type"] == "missing" else None
        raise BadInput(f"{where}: {said}", param=where or None, reason=reason) from None
