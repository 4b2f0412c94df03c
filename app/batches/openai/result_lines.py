"""Lines of a batch's output and error files, made of its results as they are read.

Shapes: OpenAI's Batch API. What an engine refused or broke at stands in `response.body.error` and `error` is null; what was never
run has no response. The ids of a line are always the same, so that a file read twice is the same bytes.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from hashlib import sha256
from itertools import takewhile
from uuid import UUID

import orjson

from app.engines.catalogue import Price
from app.engines.pricing import priced
from app.queue.reads import ItemResult
from app.states import BATCH, BatchState

PriceOf = Callable[[str | None], Price | None]  # by the model that an item names; None: the batch's

# HTTP statuses of the codes that an item's error may have, and OpenAI's type of it.
_STATUSES: Mapping[int, tuple[int, str]] = {
    5006: (400, "invalid_request_error"),
    3040: (429, "rate_limit_error"),
}
_TIMED_OUT = 3007  # no answer came, so there is none to show
_BROKEN = (500, "server_error")
_NOT_RUN = {
    BatchState.CANCELLED: {"code": "batch_cancelled", "message": "This request was cancelled before it was executed."},
    BatchState.EXPIRED: {
        "code": "batch_expired",
        "message": "This request could not be executed before the completion window expired.",
    },
}
_TIMEOUT = "request_timeout"
_NO_RESULT = {"code": "server_error", "message": "This request has no result."}


def belongs(item: ItemResult, *, of_errors: bool) -> bool:
    """Whether the item has its line in this file: answers in the one, everything else in the other."""
    return of_errors != (item.ok and item.body is not None)


def line(request_id: UUID, state: BatchState, item: ItemResult, price_of: PriceOf, *, numbered: bool = False) -> bytes:
    """The line of an item, with its end. `numbered`: an item that was given no name is called by its number."""
    digest = sha256(b"%b %d" % (request_id.bytes, item.seq)).hexdigest()
    name, called = digest[:32].encode(), digest[32:]
    custom_id = orjson.dumps(str(item.seq) if numbered and item.reference is None else item.reference)
    if item.ok and item.body is not None:
        response = _response(called, 200, priced(item.body, price_of(item.model)))
        return b'{"id":"batch_req_%b","custom_id":%b,"response":%b,"error":null}\n' % (
            name,
            custom_id,
            response,
        )
    said = None if item.body is None else orjson.loads(item.body)
    if said is None or said["code"] == _TIMED_OUT:
        error = _NOT_RUN.get(state, _NO_RESULT) if said is None else {"code": _TIMEOUT, "message": said["message"]}
        return b'{"id":"batch_req_%b","custom_id":%b,"response":null,"error":%b}\n' % (
            name,
            custom_id,
            orjson.dumps(error),
        )
    status, kind = _STATUSES.get(said["code"], _BROKEN)
    error_body = {"message": said["message"], "type": kind, "param": said.get("param"), "code": said.get("reason")}
    body = orjson.dumps({"error": error_body})
    response = _response(called, status, body)
    return b'{"id":"batch_req_%b","custom_id":%b,"response":%b,"error":null}\n' % (name, custom_id, response)


def _response(called: str, status: int, body: bytes) -> bytes:
    """`called`: 32 hexadecimal digits that name the call."""
    name = f"{called[:8]}-{called[8:12]}-{called[12:16]}-{called[16:20]}-{called[20:]}".encode()
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

    Of a batch that runs: as far as all items have their results, so that what was read once is the beginning of the file for
    ever.
    """
    final = state in BATCH.final()
    async for page in pages:
        known = page if final else list(takewhile(lambda item: item.body is not None, page))
        mine = [item for item in known if belongs(item, of_errors=of_errors)]
        told, skip = mine[skip:], max(0, skip - len(mine))
        block = b"".join(line(request_id, state, item, price_of, numbered=numbered) for item in told)
        if block:
            yield block
        if len(known) < len(page):
            return
