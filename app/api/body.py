"""Read a request's body within a cap, and know what kind it is."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request

from app.batches.validation import strict_json
from app.errors import BadInput, BodyTooLarge, MissingInput

JSON = "application/json"
NDJSON = "application/x-ndjson"
_SMALL_BYTES = 64 * 1024  # is read in less time than a thread takes to be woken
_UNSAID = ("", "application/x-www-form-urlencoded", "text/plain")


def content_type(request: Request) -> str:
    """The media type, JSON or NDJSON. Raises MissingInput for others and for compressed bodies.

    What `curl -d` sends without a header of ours is taken for JSON, as Workers AI does.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise MissingInput(f"Content-Encoding {encoding!r} is not accepted; send the body uncompressed", status=415)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in (JSON, NDJSON):
        return kind
    if kind in _UNSAID:
        return JSON
    raise MissingInput(
        f"Request is missing headers or body: Content-Type must be {JSON} or {NDJSON}, got {kind!r}", status=415
    )


async def blocks(request: Request, cap_mb: float, refusal: BodyTooLarge | None = None) -> AsyncIterator[bytes]:
    """The body as it arrives. Raises BodyTooLarge, or the `refusal`, as soon as it is known to exceed the cap."""
    cap = int(cap_mb * 2**20)
    declared = request.headers.get("content-length", "")
    message = f"Request is too large: this body may have at most {cap_mb:g} MB; send several batches, or NDJSON"
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
    """The body as one JSON object, parsed strictly; a large one off the event loop."""
    raw = bytearray()
    async for block in blocks(request, cap_mb):
        raw += block
    if not raw.strip():
        raise MissingInput("Request is missing headers or body: the body is empty")
    try:
        if len(raw) <= _SMALL_BYTES:
            value = strict_json.loads(bytes(raw))
        else:
            value = await asyncio.to_thread(strict_json.loads, bytes(raw))
    except strict_json.JsonError as error:
        raise BadInput(f"Bad input: {error}") from None
    if not isinstance(value, dict):
        raise BadInput(f"Bad input: the body must be a JSON object, not {type(value).__name__}")
    return value
