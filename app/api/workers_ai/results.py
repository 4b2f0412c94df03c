"""The form of a batch at Workers AI: its progress in a few fields, its results as a stream of constant memory."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import takewhile
from typing import Any

import orjson

from app import clock, trace_context
from app.batches.intake import ndjson
from app.batches.listing import REFUSED
from app.batches.refused_batches import RefusedBatch
from app.batches.why_chain import Link, Why
from app.engines import embeddings
from app.engines.catalogue import Catalogue, Model, Price, Shape
from app.engines.native_response import as_result
from app.engines.pricing import priced, with_cost
from app.queue.estimate import Estimate
from app.queue.reads import BatchStatus, ItemResult
from app.states import BatchState

_NOT_RUN = {
    BatchState.CANCELLED: b'{"code":5001,"message":"The batch was cancelled before this item was done"}',
    BatchState.EXPIRED: b'{"code":3007,"message":"The deadline passed before this item was done"}',
}
_NO_RESULT = b'{"code":5001,"message":"The item has no result"}'


def pending(why: Why) -> dict[str, Any]:
    """`queued` or `running` as at Workers AI, and our counts, estimate and the reason for which it waits."""
    status = why.status
    return {
        "status": _progressing(status),
        "request_id": str(status.request_id),
        "model": status.model,
        "progress": _progress(status),
        **_prospects(why),
    }


def overview(why: Why, models: Catalogue) -> dict[str, Any]:
    """A batch without its results."""
    status = why.status
    final, model = status.finalized_at is not None, models.resolve(status.model)
    return {
        "request_id": str(status.request_id),
        "name": status.name,
        "model": status.model,
        "status": status.state if final or status.state != BatchState.OPEN else _progressing(status),
        "run": status.run,
        "progress": _progress(status),
        "usage": usage(status, _price(model, status)),
        "tags": list(status.tags),
        "metadata": status.metadata,
        "policy": status.policy,
        "diverted_to": status.diverted_to,
        "trace_id": trace_context.trace_id(status.traceparent),
        "created_at": clock.iso(status.created_at),
        "finished_at": clock.iso(status.finalized_at),
        "expires_at": clock.iso(status.expires_at),
        **_prospects(why),
    }


def refusal(batch: RefusedBatch) -> dict[str, Any]:
    """A batch that was refused because of its file; `errors` as in OpenAI's batch."""
    return {
        "request_id": str(batch.request_id),
        "name": (batch.metadata or {}).get("name"),
        "model": None,
        "status": REFUSED,
        "errors": batch.problems,
        "run": 0,
        "progress": {"total": 0, "succeeded": 0, "failed": 0},
        "usage": _usage(0, {"cached_tokens": 0}, 0, {}, None),
        "tags": [],
        "metadata": batch.metadata,
        "policy": None,
        "diverted_to": None,
        "trace_id": None,
        "created_at": clock.iso(batch.created_at),
        "finished_at": clock.iso(batch.created_at),
        "expires_at": None,
    }


def _progressing(status: BatchStatus) -> str:
    return "running" if status.started else "queued"


def _prospects(why: Why) -> dict[str, Any]:
    """The estimate of its end, the reason for which it waits, if it does, and when its contents were deleted."""
    view: dict[str, Any] = {}
    if why.estimate is not None:
        view["estimate"] = _estimate(why.estimate, why.no_eta)
    if why.status.shredded_at is not None:
        view["deleted_at"] = clock.iso(why.status.shredded_at)
    if (waiting := why.waiting) is not None:
        view["waiting"] = link(waiting)
    return view


def link(of: Link) -> dict[str, Any]:
    """A reason for which a batch waits, or would wait next."""
    return {"code": of.code, "message": of.message, "since": clock.iso(of.since)}


def _estimate(estimate: Estimate, no_eta: str | None) -> dict[str, Any]:
    eta, pace = estimate.eta_seconds, estimate.tokens_per_second
    return {
        "position": estimate.position,
        "share": round(estimate.share, 4),
        "tokens_per_second": None if pace is None else round(pace, 1),
        "eta_seconds": None if eta is None else round(eta, 1),
        "eta": None if eta is None else clock.iso(clock.now() + timedelta(seconds=eta)),
        "confidence": estimate.confidence,
        "no_eta": no_eta,
    }


def http_status(status: BatchStatus, *, all_refused: bool) -> int:
    """The HTTP status for the poll of a final batch. Success: it has answers, or the caller cancelled it, or every item was
    refused with its own reason (`all_refused`).
    """
    if status.ok > 0 or all_refused or status.state == BatchState.CANCELLED:
        return 200
    return 408 if status.state == BatchState.EXPIRED else 500


def _progress(status: BatchStatus) -> dict[str, Any]:
    counts: dict[str, Any] = {"total": status.total, "succeeded": status.ok, "failed": status.failed}
    if status.state in _NOT_RUN:
        counts[str(status.state)] = status.unfinished
    if status.finalized_at is None:
        items = status.items
        counts |= {"queued": items.queued, "claimed": items.claimed, "in_engine": items.in_engine}
        if items.returns_at is not None:
            counts["returns_at"] = clock.iso(items.returns_at)
    return counts


Pages = AsyncIterator[list[ItemResult]]


async def render(status: BatchStatus, pages: Pages, models: Catalogue, code: int) -> AsyncIterator[bytes]:
    """The envelope with all responses in input order, page by page, under the HTTP status `code`."""
    before, model = b'{"result":{"responses":[', models.resolve(status.model)
    async for page in pages:
        yield before + b",".join(await _responses(page, status, models))
        before = b","
    yield (b"" if before == b"," else before) + b'],"usage":' + orjson.dumps(usage(status, _price(model, status)))
    if code == 200:
        yield b'},"success":true,"errors":[],"messages":[]}'
    else:
        yield b'},"success":false,"errors":[' + orjson.dumps(_error(status)) + b'],"messages":[]}'


async def lines(
    status: BatchStatus, pages: Pages, models: Catalogue, *, only_failed: bool = False, skip: int = 0
) -> AsyncIterator[bytes]:
    """The same responses, one a line, without the first `skip` lines. Of a running batch they end before the first item without
    a result, so a line never changes its place.
    """
    final = status.finalized_at is not None
    async for page in pages:
        known = page if final else list(takewhile(lambda item: item.body is not None, page))
        mine = [item for item in known if not only_failed or not _answered(item)]
        sent, skip = mine[skip:], max(0, skip - len(mine))
        if sent:
            yield ndjson.unbroken(b"\n".join(await _responses(sent, status, models)) + b"\n")
        if len(known) < len(page):
            return


def _error(status: BatchStatus) -> dict[str, Any]:
    if status.state == BatchState.EXPIRED:
        return {"code": 3007, "message": f"The deadline passed before any of the {status.total} items was answered"}
    return {"code": 5001, "message": f"Model execution failed: none of the {status.total} items succeeded"}


def usage(status: BatchStatus, price: Price | None) -> dict[str, Any]:
    """Tokens of the whole batch and what they cost; cached tokens are a part of the prompt tokens."""
    inputs, outputs = status.parts("input", cached_tokens=status.cached_tokens), status.parts("output")
    return _usage(status.prompt_tokens, inputs, status.completion_tokens, outputs, price)


def _price(model: Model | None, status: BatchStatus) -> Price | None:
    """The price of a batch's tokens; None where its items may differ in it."""
    return model.price_of(status.work, status.created_at) if model and status.has_one_model else None


def _usage(
    prompt: int, inputs: dict[str, int], completion: int, outputs: dict[str, int], price: Price | None
) -> dict[str, Any]:
    tokens = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": inputs,
    }
    return with_cost(tokens | ({"completion_tokens_details": outputs} if outputs else {}), price)


async def _responses(page: list[ItemResult], status: BatchStatus, models: Catalogue) -> list[bytes]:
    """The responses of one page. Where the catalogue has lost the model, the engine's answer is not converted."""
    not_run, models = _NOT_RUN.get(status.state, _NO_RESULT), models.priced(status.work, status.created_at)
    # a model that the policy chose answers in the form of the one that was asked for
    asked = models.resolve(status.policy.get("asked", status.model)) if status.policy else None

    def rendered() -> list[bytes]:
        return [_response(item, models.resolve(item.model or status.model), not_run, asked) for item in page]

    if page[0].item is None:
        return rendered()
    return await asyncio.to_thread(rendered)  # vectors take long to parse and to compare


def _response(item: ItemResult, model: Model | None, not_run: bytes, asked: Model | None = None) -> bytes:
    reference = orjson.dumps(item.reference)
    if item.body is not None and _answered(item):
        result = _result(item, item.body, model, asked.shape if asked else None)
        yielded = b',"yields":%d' % item.yields if item.yields else b""
        named = b',"model":%b' % orjson.dumps(model.name) if model and (item.model or asked) else b""
        return b'{"id":%d,"result":%b,"success":true,"external_reference":%b%b%b}' % (
            item.seq,
            result,
            reference,
            yielded,
            named,
        )
    error = item.body or not_run
    return b'{"id":%d,"result":null,"success":false,"external_reference":%b,"error":%b}' % (item.seq, reference, error)


def _answered(item: ItemResult) -> bool:
    return item.ok and item.body is not None


def _result(item: ItemResult, answer: bytes, model: Model | None, shape: Shape | None) -> bytes:
    if model is None:
        return answer
    if model.task != "text-embeddings":
        return as_result(answer, shape or model.shape, model.price, wants_json=item.wants_json)
    request = {} if item.item is None else orjson.loads(item.item)
    if not embeddings.is_native(request):
        return priced(answer, model.price)
    return embeddings.as_result(answer, request, model.pooling, model.price)
