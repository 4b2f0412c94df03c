"""How a batch looks to the one who polls: pending in a few words, final as a stream of constant memory."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from app import clock
from app.batches.why import Why
from app.engines import embeddings
from app.engines.catalogue import Model, Price
from app.engines.pricing import with_cost
from app.engines.shapes import as_result
from app.queue.estimate import Estimate
from app.queue.reading import ItemResult, Status
from app.states import BatchState

_NOT_RUN = {
    BatchState.CANCELLED: b'{"code":5001,"message":"The batch was cancelled before this item was done"}',
    BatchState.EXPIRED: b'{"code":3007,"message":"The deadline passed before this item was done"}',
}
_NO_RESULT = b'{"code":5001,"message":"The item has no result"}'


def pending(why: Why) -> dict[str, Any]:
    """`queued` or `running`, with live counts, an estimate and what it waits for beside what Workers AI sends."""
    status = why.status
    return {
        "status": _progressing(status),
        "request_id": str(status.request_id),
        "model": status.model,
        "progress": _progress(status),
        **_prospects(why),
    }


def overview(why: Why, price: Price | None) -> dict[str, Any]:
    """Everything about a batch but its results."""
    status = why.status
    final = status.finalized_at is not None
    return {
        "request_id": str(status.request_id),
        "model": status.model,
        "status": status.state if final or status.state != BatchState.OPEN else _progressing(status),
        "run": status.run,
        "progress": _progress(status),
        "usage": usage(status, price),
        "created_at": _moment(status.created_at),
        "finished_at": _moment(status.finalized_at),
        "expires_at": _moment(status.expires_at),
        **_prospects(why),
    }


def _progressing(status: Status) -> str:
    return "running" if status.started else "queued"


def _prospects(why: Why) -> dict[str, Any]:
    """When it will be done, and what it waits for if it does."""
    found: dict[str, Any] = {}
    if why.estimate is not None:
        found["estimate"] = _estimate(why.estimate)
    if (waiting := why.waiting) is not None:
        found["waiting"] = {"code": waiting.code, "message": waiting.message, "since": _moment(waiting.since)}
    return found


def _estimate(estimate: Estimate) -> dict[str, Any]:
    eta, pace = estimate.eta_seconds, estimate.tokens_per_second
    return {
        "position": estimate.position,
        "share": round(estimate.share, 4),
        "tokens_per_second": None if pace is None else round(pace, 1),
        "eta_seconds": None if eta is None else round(eta, 1),
        "eta": None if eta is None else _moment(clock.now() + timedelta(seconds=eta)),
        "confidence": estimate.confidence,
    }


def http_status(status: Status) -> int:
    """Of the poll of a final batch: some answers, or an end that the caller wished for, are a success."""
    if status.ok > 0 or status.state == BatchState.CANCELLED:
        return 200
    return 408 if status.state == BatchState.EXPIRED else 500


def _progress(status: Status) -> dict[str, int]:
    counts = {"total": status.total, "succeeded": status.ok, "failed": status.failed}
    if status.state in _NOT_RUN:
        counts[str(status.state)] = status.unfinished
    return counts


def _moment(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds") if moment else None


async def render(status: Status, pages: AsyncIterator[list[ItemResult]], model: Model | None) -> AsyncIterator[bytes]:
    """The envelope with all responses in input order, page by page. A `model` that is known no more: as the engine answered."""
    yield b'{"result":{"responses":['
    separator, not_run = b"", _NOT_RUN.get(status.state, _NO_RESULT)
    async for page in pages:
        if page[0].item is None:
            yield separator + _responses(page, model, not_run)
        else:  # vectors take long to parse and to compare
            yield separator + await asyncio.to_thread(_responses, page, model, not_run)
        separator = b","
    yield b'],"usage":' + orjson.dumps(usage(status, model.price if model else None))
    if http_status(status) == 200:
        yield b'},"success":true,"errors":[],"messages":[]}'
    else:
        yield b'},"success":false,"errors":[' + orjson.dumps(_error(status)) + b'],"messages":[]}'


def _error(status: Status) -> dict[str, Any]:
    if status.state == BatchState.EXPIRED:
        return {"code": 3007, "message": f"The deadline passed before any of the {status.total} items was answered"}
    return {"code": 5001, "message": f"Model execution failed: none of the {status.total} items succeeded"}


def usage(status: Status, price: Price | None) -> dict[str, Any]:
    """Tokens of the whole batch and what they cost; cached tokens are a part of the prompt tokens."""
    tokens = {
        "prompt_tokens": status.prompt_tokens,
        "completion_tokens": status.completion_tokens,
        "total_tokens": status.prompt_tokens + status.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": status.cached_tokens},
    }
    return with_cost(tokens, price)


def _responses(page: list[ItemResult], model: Model | None, not_run: bytes) -> bytes:
    return b",".join(_response(item, model, not_run) for item in page)


def _response(item: ItemResult, model: Model | None, not_run: bytes) -> bytes:
    reference = orjson.dumps(item.reference)
    if item.ok and item.body is not None:
        result = _result(item, item.body, model)
        yielded = b',"yields":%d' % item.yields if item.yields else b""
        return b'{"id":%d,"result":%b,"success":true,"external_reference":%b%b}' % (
            item.seq,
            result,
            reference,
            yielded,
        )
    error = item.body or not_run
    return b'{"id":%d,"result":null,"success":false,"external_reference":%b,"error":%b}' % (item.seq, reference, error)


def _result(item: ItemResult, answer: bytes, model: Model | None) -> bytes:
    if model is not None and item.item is not None:
        return embeddings.as_result(answer, orjson.loads(item.item), model.pooling, model.price)
    if model is None:
        return answer
    return as_result(answer, model.shape, model.price, wants_json=item.wants_json)
