"""One item of a batch. Its prompt and answer are hidden; a reveal shows them once, and is recorded before it does."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app import clock
from app.audit.acts import Act
from app.audit.record import Record
from app.batches.withholding import withholder
from app.console import forms, queries_items
from app.console.page import whole
from app.console.pages import batch
from app.console.pages.acting import write
from app.console.pages.actions import refuse
from app.console.parts import Parts, parts_of, viewer_of
from app.console.queries import BatchRow
from app.console.views import item
from app.errors import BadInput, NotFound
from app.queue import items
from app.queue.bodies import StoredBodies
from app.queue.items import ItemFacts
from app.sealing.keyring import Keyring
from app.storage.store import Store

_REASON = range(3, 401)
_MOST_SEQ = 2**31 - 1


async def show(request: Request) -> Response:
    """What happened to an item."""
    row, tries = await _find(request)
    context = item.view(row, tries, viewer_of(request), clock.now())
    return await whole(request, "item", context, active="/console/batches")


async def reveal(request: Request) -> Response:
    """The same with its bodies, for a role that may see them and gives a reason."""
    parts, viewer = parts_of(request), viewer_of(request)
    row, tries = await _find(request)
    if not viewer.role.reveals:
        raise refuse(viewer, "see prompts and answers")
    reason = await reason_of(request)
    context = item.view(row, tries, viewer, clock.now())
    context["revealed"] = await _bodies(parts, row, tries[0].seq)
    target = f"{row.request_id}/{tries[0].seq}"
    await write(parts, Record(Act.ITEM_REVEAL, target, row.account, reason=reason))  # read by now, and not shown yet
    return await whole(request, "item", context, active="/console/batches")


async def reason_of(request: Request) -> str:
    """Why somebody wants to see what was said. Raises BadInput."""
    reason = str((await forms.read(request)).get("reason", "")).strip()
    if len(reason) not in _REASON:
        raise BadInput(f"reason: must be {_REASON[0]} to {_REASON[-1]} characters")
    return reason


async def _find(request: Request) -> tuple[BatchRow, list[ItemFacts]]:
    parts = parts_of(request)
    row = await batch.find_of(request, parts, viewer_of(request))
    seq = int(request.path_params["seq"])
    async with parts.reader.relaxed() as conn:
        keyring = Keyring.of(parts.settings)
        tries = await queries_items.tries(conn, keyring, row.batch_id, seq) if seq <= _MOST_SEQ else []
        if tries and tries[-1].ok is None and row.finalized_at is None:
            now = await items.one(conn, keyring, row.batch_id, row.run, seq)
            tries = [*tries[:-1], now or tries[-1]]
    if not tries:
        raise NotFound("There is no such item")
    return row, tries


async def _bodies(parts: Parts, row: BatchRow, seq: int) -> dict[str, str | None]:
    async with parts.reader.relaxed() as conn:
        found = await queries_items.bodies(conn, row.batch_id, seq)
    assert found is not None
    store, stored = Store.of(parts.settings), StoredBodies(parts.reader, Keyring.of(parts.settings), row.batch_id)
    prompt = await store.get(found.prompt.decode()) if found.prompt_stored else found.prompt
    prompt = await stored.payload(seq, prompt)
    if found.answer is None:
        return {"prompt": item.prompt(prompt), "answer": None}
    answer = await store.get(found.answer.decode()) if found.answer_stored else found.answer
    answer = await stored.result(seq, found.run or 0, answer, ok=bool(found.ok))
    withholding = withholder(row.policy, row.request_id, partial(parts.admission.withheld, row.account))
    if withholding is not None and found.ok:
        answer = withholding.body(answer, prompt)
    return {"prompt": item.prompt(prompt), "answer": item.answer(answer)}


ROUTES = (
    Route("/console/batches/{batch_id}/items/{seq:int}", show, name="item"),
    Route("/console/batches/{batch_id}/items/{seq:int}/reveal", reveal, methods=["POST"]),
)
