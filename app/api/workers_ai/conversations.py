"""`…/ai/conversations`: how the conversations of an account grow, and their turns, without what was said."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from app import clock, places
from app.api.deps import Caller, Parts, PartsDep
from app.api.envelope import success
from app.api.parameter_limits import LARGEST, Text, cursor
from app.errors import NotFound
from app.sessions import listing, service
from app.sessions.listing import Filter, Listed, ListedTurn

router = APIRouter(prefix="/ai/conversations")

_PLACES = f"^{places.TIME}[0-9a-f]{{32}}$"  # when it was last used; its id


class ConversationQuery(BaseModel):
    """The query of a list of conversations."""

    model_config = ConfigDict(extra="forbid")

    busy: bool = Field(default=False, description="only those in which a turn runs")
    growing: bool = Field(default=False, description="only those whose prompts become longer")
    limit: int = Field(default=listing.PAGE_ROWS, ge=1, le=100, description="conversations in one page")
    after: Text | None = cursor(_PLACES)


class TurnQuery(BaseModel):
    """The query of the turns of a conversation."""

    model_config = ConfigDict(extra="forbid")

    before: int | None = Field(default=None, ge=1, le=LARGEST, description="only turns before this one")
    limit: int = Field(default=listing.PAGE_ROWS, ge=1, le=100, description="turns in one page")


@router.get("")
async def grown(tenant: Caller, parts: PartsDep, query: Annotated[ConversationQuery, Query()]) -> Response:
    """The conversations of the account, the last used first: turns, growth, how full the window is, checkpoints."""
    return await conversations_of(parts, query, tenant.tenant_id)


@router.get("/{conversation_id}/turns")
async def turns(
    conversation_id: str, tenant: Caller, parts: PartsDep, query: Annotated[TurnQuery, Query()]
) -> Response:
    """The turns of a conversation, the newest first: state, model, tokens and times."""
    return await turns_of(parts, conversation_id, query, tenant.tenant_id)


async def conversations_of(
    parts: Parts, query: ConversationQuery, tenant_id: int | None, account: str = ""
) -> Response:
    """A page of conversations. `tenant_id` None: of all accounts, or of `account`."""
    after = places.read(query.after, UUID)
    wanted = Filter(tenant_id, account, query.busy, query.growing, after=after)
    async with parts.database.relaxed() as conn:
        rows, more = await listing.page(conn, wanted, query.limit)
    cursor = places.written(rows[-1].used_at, rows[-1].session_id) if more else None
    shown = [({"account": each.account} if tenant_id is None else {}) | _view(each, parts) for each in rows]
    return success(shown, result_info={"count": len(rows), "per_page": query.limit, "cursor": cursor})


async def turns_of(parts: Parts, conversation_id: str, query: TurnQuery, tenant_id: int | None) -> Response:
    """A page of the turns of a conversation. `tenant_id` None: of any account. Raises NotFound."""
    session_id = service.parse(conversation_id, service.CONVERSATION, "conversation")
    async with parts.database.relaxed() as conn:
        if await listing.one(conn, tenant_id, session_id) is None:
            raise NotFound(f"Conversation with id {conversation_id[:60]!r} not found.")
        rows, more = await listing.turns(conn, session_id, before=query.before, limit=query.limit)
    info = {"count": len(rows), "per_page": query.limit, "cursor": str(rows[-1].n) if more else None}
    return success([_turn(each) for each in rows], result_info=info)


def _view(each: Listed, parts: Parts) -> dict[str, Any]:
    model = parts.catalogue.resolve(each.model) if each.model else None
    window = model.context_window if model else None
    fill = each.fill(window)
    return {
        "id": each.public_id,
        "metadata": dict(each.metadata),
        "turns": each.version,
        "busy": each.busy,
        "model": each.model,
        "prompt_tokens": each.prompt_tokens,
        "completion_tokens": each.completion_tokens,
        "window": window,
        "window_filled": None if fill is None else round(fill, 4),
        "tokens_a_turn": None if each.slope is None else round(each.slope, 1),
        "turns_until_full": each.turns_left(window),
        "summary_up_to": each.base if each.has_summary else None,
        "created_at": clock.iso(each.created_at),
        "used_at": clock.iso(each.used_at),
    }


def _turn(each: ListedTurn) -> dict[str, Any]:
    return {
        "turn": each.n,
        "response": each.public_id if each.model else None,
        "status": str(each.state),
        "model": each.model,
        "shortened": each.shortened,
        "batch": str(each.batch) if each.batch else None,
        "prompt_tokens": each.prompt_tokens,
        "cached_tokens": each.cached_tokens,
        "completion_tokens": each.completion_tokens,
        "created_at": clock.iso(each.created_at),
        "finished_at": clock.iso(each.finished_at),
    }
