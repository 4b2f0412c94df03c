"""How a batch looks to the one who polls: pending in a few words, final as a stream of constant memory."""

from collections.abc import AsyncIterator
from typing import Any, Literal

import orjson

from app.engines.shapes import as_result
from app.queue.reading import ItemResult, Status
from app.states import BatchState

_NOT_RUN = b'{"code":5001,"message":"The item has no result"}'


def pending(status: Status) -> dict[str, Any]:
    """`queued` or `running`, with live counts beside what Workers AI sends."""
    return {
        "status": "running" if status.started else "queued",
        "request_id": str(status.request_id),
        "model": status.model,
        "progress": {"total": status.total, "succeeded": status.ok, "failed": status.failed},
    }


async def render(
    status: Status, pages: AsyncIterator[list[ItemResult]], shape: Literal["native", "openai"]
) -> AsyncIterator[bytes]:
    """The envelope with all responses in input order, page by page."""
    yield b'{"result":{"responses":['
    separator = b""
    async for page in pages:
        yield separator + b",".join(_response(item, shape) for item in page)
        separator = b","
    yield b'],"usage":' + orjson.dumps(usage(status))
    if status.state == BatchState.COMPLETED:
        yield b'},"success":true,"errors":[],"messages":[]}'
    else:
        error = {"code": 5001, "message": f"Model execution failed: none of the {status.total} items succeeded"}
        yield b'},"success":false,"errors":[' + orjson.dumps(error) + b'],"messages":[]}'


def usage(status: Status) -> dict[str, Any]:
    """Tokens of the whole batch; cached tokens are a part of the prompt tokens."""
    return {
        "prompt_tokens": status.prompt_tokens,
        "completion_tokens": status.completion_tokens,
        "total_tokens": status.prompt_tokens + status.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": status.cached_tokens},
    }


def _response(item: ItemResult, shape: Literal["native", "openai"]) -> bytes:
    reference = orjson.dumps(item.reference)
    if item.ok and item.body is not None:
        result = as_result(item.body, shape, wants_json=item.wants_json)
        return b'{"id":%d,"result":%b,"success":true,"external_reference":%b}' % (item.seq, result, reference)
    error = item.body or _NOT_RUN
    return b'{"id":%d,"result":null,"success":false,"external_reference":%b,"error":%b}' % (item.seq, reference, error)
