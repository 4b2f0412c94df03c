"""Lines of a batch's output and error files, made from its results while they are read.

Shapes: OpenAI's Batch API. The error of an engine is in `response.body.error`, and `error` is null. An item that never ran has
no response. The ids of a line are always the same, so repeated reads of a file return the same bytes.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from hashlib import sha256
from itertools import takewhile
from uuid import UUID

import orjson

from app.batches.intake import ndjson
from app.engines.catalogue import Price
from app.engines.pricing import priced
from app.openai_codes import OpenAICode
from app.queue.reads import ItemResult
from app.states import BATCH, BatchState

PriceOf = Callable[[str | None], Price | None]  # by the model of the item; None: that of the batch

# By the code of an item's error: the HTTP status, OpenAI's type, and OpenAI's code if the error has none of its own.
_STATUSES: Mapping[int, tuple[int, str, OpenAICode | None]] = {
    5006: (400, "invalid_request_error", None),
    3040: (429, "rate_limit_error", OpenAICode.CAPACITY),
}
_TIMED_OUT = 3007  # there was no answer, so there is no response
_SERVER_ERROR = (500, "server_error", OpenAICode.SERVER_ERROR)
_NOT_RUN = {
    BatchState.CANCELLED: {
        "code": OpenAICode.BATCH_CANCELLED,
        "message": "This request was cancelled before it was executed.",
    },
    BatchState.EXPIRED: {
        "code": OpenAICode.BATCH_EXPIRED,
        "message": "This request could not be executed before the completion window expired.",
    },
}
_NO_RESULT = {"code": OpenAICode.SERVER_ERROR, "message": "This request has no result."}


def belongs(item: ItemResult, *, of_errors: bool) -> bool:
    """Whether the item's line is in this file: answers are in the output file, other items in the error file."""
    return of_errors != (item.ok and item.body is not None)


def line(request_id: UUID, state: BatchState, item: ItemResult, price_of: PriceOf, *, numbered: bool = False) -> bytes:
    """The line of an item with its line end. `numbered`: an item without a reference gets its number as custom_id."""
    digest = sha256(b"%b %d" % (request_id.bytes, item.seq)).hexdigest()
    name, call_id = digest[:32].encode(), digest[32:]
    custom_id = orjson.dumps(str(item.seq) if numbered and item.reference is None else item.reference)
    if item.ok and item.body is not None:
        response = _response(call_id, 200, priced(item.body, price_of(item.model)))
        return b'{"id":"batch_req_%b","custom_id":%b,"response":%b,"error":null}\n' % (
            name,
            custom_id,
            response,
        )
    item_error = None if item.body is None else orjson.loads(item.body)
    if item_error is None or item_error["code"] == _TIMED_OUT:
        error = (
            _NOT_RUN.get(state, _NO_RESULT)
            if item_error is None
            else {"code": OpenAICode.REQUEST_TIMEOUT, "message": item_error["message"]}
        )
        return b'{"id":"batch_req_%b","custom_id":%b,"response":null,"error":%b}\n' % (
            name,
            custom_id,
            orjson.dumps(error),
        )
    status, kind, code = _STATUSES.get(item_error["code"], _SERVER_ERROR)
    error_body = {
        "message": item_error["message"],
        "type": kind,
        "param": item_error.get("param"),
        "code": item_error.get("reason") or code,
    }
    body = orjson.dumps({"error": error_body})
    response = _response(call_id, status, body)
    return b'{"id":"batch_req_%b","custom_id":%b,"response":%b,"error":null}\n' % (name, custom_id, response)


def _response(call_id: str, status: int, body: bytes) -> bytes:
    """`call_id`: 32 hexadecimal digits."""
    name = f"{call_id[:8]}-{call_id[8:12]}-{call_id[12:16]}-{call_id[16:20]}-{call_id[20:]}".encode()
    return b'{"status_code":%d,"request_id":"%b","body":%b}' % (status, name, body)


async def lines(
    request_id: UUID,
    state: BatchState,
    pages: AsyncIterator[list[ItemResult]],
    *,
    of_errors: bool,
    price_of: PriceOf,
    numbered: bool = False,
    skip: int = 0,
) -> AsyncIterator[bytes]:
    """The file without its first `skip` lines, page by page.

    The file of a running batch ends before the first item without a result, so lines that were read once never change.
    """
    final = state in BATCH.final()
    async for page in pages:
        known = page if final else list(takewhile(lambda item: item.body is not None, page))
        mine = [item for item in known if belongs(item, of_errors=of_errors)]
        sent, skip = mine[skip:], max(0, skip - len(mine))
        block = b"".join(line(request_id, state, item, price_of, numbered=numbered) for item in sent)
        if block:
            yield ndjson.unbroken(block)
        if len(known) < len(page):
            return
