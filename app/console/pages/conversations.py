"""Conversations: the list, one of them, and one turn, whose texts are hidden; a reveal is recorded before it shows them."""

from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app import clock, places
from app.access.roles import Viewer
from app.audit.acts import Act
from app.audit.record import Record
from app.console.page import Page, Params, whole
from app.console.pages.acting import write
from app.console.pages.actions import refuse
from app.console.pages.item import reason_of
from app.console.parts import Parts, parts_of, viewer_of
from app.console.views import conversation, conversations
from app.errors import NotFound
from app.sealing.keyring import Keyring
from app.sessions import listing, service
from app.sessions.listing import Filter, Listed, ListedTurn

_MOST_N = 2**31 - 1


async def look(parts: Parts, viewer: Viewer, params: Params) -> conversations.Seen:
    """The conversations of one page. Raises BadInput."""
    wanted, chosen = conversations.parse(params.get("q", "")), params.get("view", "")
    asked = Filter(
        tenant_id=viewer.tenant_id,
        account=wanted.account,
        busy=chosen == "busy",
        growing=chosen == "growing",
        id_range=wanted.id_range,
        after=places.read(params.get("after"), UUID),
        before=places.read(params.get("before"), UUID, "before"),
    )
    async with parts.reader.relaxed() as conn:
        rows, more = await listing.page(conn, asked)
    return conversations.Seen(rows, more, wanted, _windows(parts))


def _windows(parts: Parts) -> dict[str, int]:
    return {name: model.context_window for name, model in parts.catalogue.models.items()}


async def find(parts: Parts, viewer: Viewer, name: str) -> Listed:
    """The conversation that the address names. Raises NotFound: it does not exist, or is another account's."""
    row = None
    try:
        session_id = UUID(name.removeprefix(service.CONVERSATION))
    except ValueError:
        session_id = None
    if session_id is not None:
        async with parts.reader.relaxed() as conn:
            row = await listing.one(conn, viewer.tenant_id, session_id)
    if row is None:
        raise NotFound("There is no such conversation")
    return row


async def look_at_one(parts: Parts, viewer: Viewer, params: Params) -> conversation.Seen:
    """A conversation with a page of its turns. Raises NotFound."""
    row = await find(parts, viewer, params.get("conversation_id", ""))
    until = params.get("until", "")
    before = min(int(until), _MOST_N) if until.isdecimal() else None
    async with parts.reader.relaxed() as conn:
        turns, more = await listing.turns(conn, row.session_id, before=before)
    return conversation.Seen(row, turns, more, _windows(parts))


async def show_turn(request: Request) -> Response:
    """What is known of a turn, without what was said."""
    row, turn = await _turn(request)
    shown = conversation.turn_view(row, turn, viewer_of(request), clock.now())
    return await whole(request, "turn", shown, active=conversations.PATH)


async def reveal(request: Request) -> Response:
    """The same with what was said, for a role that may see it and gives a reason."""
    parts, viewer = parts_of(request), viewer_of(request)
    row, turn = await _turn(request)
    if not viewer.role.reveals:
        raise refuse(viewer, "see prompts and answers")
    reason = await reason_of(request)
    shown = conversation.turn_view(row, turn, viewer, clock.now())
    said = await listing.said(parts.reader, Keyring.of(parts.settings), row.session_id, turn.n)
    if said is None:
        raise NotFound("There is no such turn")
    shown["revealed"] = conversation.revealed(said)
    target = f"{row.public_id}/{turn.n}"
    await write(
        parts, Record(Act.CONVERSATION_REVEAL, target, row.account, reason=reason)
    )  # read by now, not shown yet
    return await whole(request, "turn", shown, active=conversations.PATH)


async def _turn(request: Request) -> tuple[Listed, ListedTurn]:
    parts = parts_of(request)
    row = await find(parts, viewer_of(request), str(request.path_params["conversation_id"]))
    n = int(request.path_params["n"])
    async with parts.reader.relaxed() as conn:
        turn = await listing.turn(conn, row.session_id, n) if n <= _MOST_N else None
    if turn is None:
        raise NotFound("There is no such turn")
    return row, turn


PAGE = Page(
    "conversations",
    conversations.PATH,
    look,
    lambda seen, viewer, params, now: conversations.view(seen, params, now) | {"one_account": bool(viewer.account)},
    regions=("top", "list"),
    params=("view", "q", "after", "before"),
)
ONE = Page(
    "conversation",
    f"{conversations.PATH}/{{conversation_id}}",
    look_at_one,
    conversation.view,
    regions=("top", "figures", "growth", "turns"),
    params=("conversation_id", "until"),
    active=conversations.PATH,
)
ROUTES = (
    Route(f"{conversations.PATH}/{{conversation_id}}/turns/{{n:int}}", show_turn, name="turn"),
    Route(f"{conversations.PATH}/{{conversation_id}}/turns/{{n:int}}/reveal", reveal, methods=["POST"]),
)
