"""`…/conversations`: OpenAI's conversations and their items. `POST /responses` adds their turns.

Shapes: openai-python 3.52, `types/conversations`. A conversation's version is in the header `etag`.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict

from app import cells, clock, off_loop
from app.api.body import read_model
from app.api.deps import KeyHolder, Parts, PartsDep
from app.api.openai import turns
from app.api.openai.background_responses import InputItemQuery
from app.api.openai.list_pages import answer, listed
from app.api.openai.metadata import read_metadata
from app.batches.validation.openai import check_items
from app.errors import BadInput, ConversationLocked, PlaceUnknown
from app.policy.vaults import NO_VALUES
from app.sessions import changes, ending, reading, service, transcript
from app.sessions.sealing import CLEAR, TurnSeal
from app.sessions.service import CONVERSATION, Keeper, NewTurn, Session, StoredTurn
from app.sessions.transcript import Item, PastTurn
from app.storage.store import Store
from app.tenants.service import Tenant

router = APIRouter(prefix="/conversations")
_MOST_ITEMS = 20  # of one request, as at OpenAI


class NewConversation(BaseModel):
    """The body of a create."""

    model_config = ConfigDict(extra="ignore")

    items: list[dict[str, Any]] | None = None
    metadata: Any = None


class ConversationUpdate(BaseModel):
    """The body of an update."""

    model_config = ConfigDict(extra="ignore")

    metadata: Any


class NewItems(BaseModel):
    """The body that adds items."""

    model_config = ConfigDict(extra="ignore")

    items: list[dict[str, Any]]


@router.post("")
async def create(request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """A new conversation, perhaps with its first items."""
    new = await read_model(request, NewConversation)
    meta, keeper = read_metadata(new.metadata) or {}, parts.keeper(tenant)
    _check_texts(parts, tenant, meta)
    seal = await turns.seal_for(parts, tenant, CLEAR, parts.admission.encrypts_files(tenant))
    first = await _turn_of(parts, tenant, _checked(new.items), seal, NO_VALUES) if new.items else None
    session_id = await service.create(keeper, meta, seal, first)
    return _view(await reading.state(keeper, session_id))


@router.get("/{conversation_id}")
async def retrieve(conversation_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """One conversation."""
    return _view(await reading.state(parts.keeper(tenant), _parse(conversation_id)))


@router.post("/{conversation_id}")
async def update(conversation_id: str, request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Replace the metadata of a conversation."""
    session_id, change = _parse(conversation_id), await read_model(request, ConversationUpdate)
    meta = read_metadata(change.metadata) or {}
    _check_texts(parts, tenant, meta)
    await changes.rename(parts.keeper(tenant), tenant.account_id, session_id, meta, request.headers.get("if-match"))
    return _view(await reading.state(parts.keeper(tenant), session_id))


@router.delete("/{conversation_id}")
async def delete(conversation_id: str, request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Delete a conversation with its turns."""
    session_id = _parse(conversation_id)
    if_match = request.headers.get("if-match")
    objects = await changes.delete(parts.keeper(tenant), tenant.account_id, session_id, if_match)
    if objects:
        await Store.of(parts.settings).delete(objects)
    return answer({"id": service.name(session_id), "object": "conversation.deleted", "deleted": True})


@router.get("/{conversation_id}/items")
async def list_items(
    conversation_id: str, tenant: KeyHolder, parts: PartsDep, query: Annotated[InputItemQuery, Query()]
) -> Response:
    """The items of a conversation, newest first, in pages."""
    keeper, session_id = parts.keeper(tenant), _parse(conversation_id)
    ascending, step = (True, 1) if query.order == "asc" else (False, -1)
    start, skipped = await _place(keeper, session_id, query.after, ascending=ascending)
    found: list[Item] = []
    while len(found) <= query.limit and (page := await reading.page(keeper, session_id, start, ascending=ascending)):
        items = [item for turn in page for item in (await _items(turn, tenant))[::step]]
        found += items[skipped:]
        start, skipped = page[-1].n + step, 0
    return await off_loop.done(
        found[: query.limit], partial(listed, more=len(found) > query.limit), found[: query.limit]
    )


@router.post("/{conversation_id}/items")
async def add_items(conversation_id: str, request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Add items to a conversation, once no turn of it runs."""
    session_id, new = _parse(conversation_id), await read_model(request, NewItems)
    added = await _append(parts, tenant, session_id, _checked(new.items), request.headers.get("if-match"))
    return listed(added, more=False)


@router.get("/{conversation_id}/items/{item_id}")
async def retrieve_item(conversation_id: str, item_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """One item of a conversation."""
    turn, place = await reading.item(parts.keeper(tenant), _parse(conversation_id), item_id)
    item = (await _items(turn, tenant))[place]
    return await off_loop.done(item, answer, item)


@router.delete("/{conversation_id}/items/{item_id}")
async def delete_item(
    conversation_id: str, item_id: str, request: Request, tenant: KeyHolder, parts: PartsDep
) -> Response:
    """Delete an item of a conversation, and the summary of the conversation, if it has one."""
    keeper, session_id = parts.keeper(tenant), _parse(conversation_id)
    await changes.delete_item(keeper, tenant.account_id, session_id, item_id, request.headers.get("if-match"))
    return _view(await reading.state(keeper, session_id))


async def _place(keeper: Keeper, session_id: UUID, after: str | None, *, ascending: bool) -> tuple[int | None, int]:
    """Where a listing begins: the number of a turn, and how many of its items are left out. Raises PlaceUnknown."""
    if after is None:
        return None, 0
    turn = await reading.turn_of(keeper, session_id, after)
    if turn is None:
        raise PlaceUnknown(after)
    items = await off_loop.of_size(turn.size, transcript.shown, turn.past)
    before, behind = transcript.around(items, after)
    return turn.n, len(items) - (behind if ascending else before)


async def _items(turn: StoredTurn, tenant: Tenant) -> list[Item]:
    """The items of a turn as this caller may read them, the first one first."""
    return await off_loop.of_size(turn.size, _shown, turn, turn.past, tenant)


def _shown(turn: StoredTurn | NewTurn, past: PastTurn, tenant: Tenant) -> list[Item]:
    return turns.readable(turn, transcript.shown(past), tenant)


async def _append(parts: Parts, tenant: Tenant, session_id: UUID, items: list[Item], version: str | None) -> list[Item]:
    """Add items as a turn without a response. Returns them as they are listed. Raises ConversationLocked."""
    keeper = parts.keeper(tenant)
    deadline = clock.monotonic() + parts.settings.line_seconds
    while True:
        session = await reading.state(keeper, session_id)
        service.check_version(version, session.version)
        if session.late:
            await ending.lapse(keeper.database, session_id)
        elif not session.busy:
            turn = await _turn_of(parts, tenant, items, session.seal, session.values)
            if await service.append(keeper, session, turn) is not None:
                past = PastTurn(0, turn.turn_id, turn.given, ())
                return _shown(turn, past, tenant)
        if clock.monotonic() >= deadline:
            raise ConversationLocked("Another turn of this conversation runs; add the items after it")
        await asyncio.sleep(turns.POLL_SECONDS)


async def _turn_of(
    parts: Parts, tenant: Tenant, items: list[Item], seal: TurnSeal, values: Mapping[str, str]
) -> NewTurn:
    """Items as a turn without a response, redacted. `values`: of the placeholders so far. Raises SensitiveFound."""
    redaction = parts.admission.redaction(tenant)
    if redaction is not None:
        redacted = await off_loop.searched(items, redaction.redact, items, values)
        items, values = redacted.item, redacted.values
    return NewTurn(cells.new_id(), tenant.tenant_id, None, items, seal, values=values)


def _checked(items: list[Item]) -> list[Item]:
    """Items that a turn may begin with. Raises BadInput."""
    if not 1 <= len(items) <= _MOST_ITEMS:
        raise BadInput(f"items: must be 1 to {_MOST_ITEMS} items, got {len(items)}", param="items")
    check_items(items)
    return items


def _check_texts(parts: Parts, tenant: Tenant, meta: dict[str, str]) -> None:
    redaction = parts.admission.redaction(tenant)
    if redaction is not None:
        redaction.check("metadata", *meta, *meta.values())


def _view(session: Session) -> Response:
    shown = answer(
        {
            "id": service.name(session.session_id),
            "object": "conversation",
            "created_at": int(session.created_at.timestamp()),
            "metadata": dict(session.meta),
        }
    )
    shown.headers["etag"] = f'"{session.version}"'
    return shown


def _parse(text: str) -> UUID:
    return service.parse(text, CONVERSATION, "conversation")
