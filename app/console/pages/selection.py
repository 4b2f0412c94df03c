"""What somebody does to several batches at once: one confirmation names them, then each is changed and recorded by itself."""

from uuid import UUID

from starlette.datastructures import FormData, QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from app.access.roles import Viewer
from app.console import forms, queries
from app.console.page import whole
from app.console.pages import batches
from app.console.pages.actions import DID, change, refuse
from app.console.parts import Parts, parts_of, viewer_of
from app.console.queries import BatchRow
from app.console.views import batch_filter, selection
from app.console.views.selection import ADDRESS, MOST_AT_ONCE, Refused
from app.errors import BadInput, NotFound, SlackwaterError

_ACTIVE = "/console/batches"


async def confirm(request: Request) -> Response:
    """Name the batches that an action will change, and those that it leaves alone. Nothing is changed."""
    parts, viewer, asked = parts_of(request), viewer_of(request), request.query_params
    verb = _verb(viewer, asked)
    back = selection.back_to(asked.get("view", "open"), " ".join(asked.getlist("q")))
    if asked.get("all"):
        rows, more = await _matching(parts, viewer, asked)
    else:
        rows, more = await _named(parts, viewer, list(asked.getlist("id"))), False
    return await whole(request, "selected", selection.view(verb, rows, more=more, back=back), active=_ACTIVE)


async def act(request: Request) -> Response:
    """Change each of the batches that were confirmed. One that cannot be changed does not stop the others."""
    parts, viewer, form = parts_of(request), viewer_of(request), await forms.read(request)
    verb = _verb(viewer, form)
    back = str(form.get("back", ""))
    back = back if back.startswith(f"{_ACTIVE}?") else _ACTIVE
    given = dict(str(each).partition(".")[::2] for each in form.getlist("id"))
    refused = []
    rows = await _named(parts, viewer, list(given))
    for row in rows:
        run = given.get(str(row.request_id), "")
        try:
            await change(parts, viewer, row, verb, int(run) if run.isdecimal() else None)
        except SlackwaterError as error:
            refused.append(Refused(row, error.message))
    if refused:
        shown = selection.outcome(verb, len(rows) - len(refused), refused, back)
        return await whole(request, "selected", shown, active=_ACTIVE, status=409)
    return RedirectResponse(f"{back}{'&' if '?' in back else '?'}did={DID[verb]}-all", 303)


def _verb(viewer: Viewer, given: QueryParams | FormData) -> str:
    verb = str(given.get("verb", ""))
    if verb not in selection.VERBS:
        raise NotFound("There is no such action")
    if not viewer.role.acts:
        raise refuse(viewer, f"{verb} batches")
    return verb


async def _named(parts: Parts, viewer: Viewer, given: list[str]) -> list[BatchRow]:
    """The batches with these ids. Raises BadInput, NotFound: one does not exist, or is another account's."""
    try:
        ids = {UUID(each) for each in given}
    except ValueError:
        raise NotFound("There is no such batch") from None
    if not ids:
        raise BadInput("No batch is selected: tick at least one, then choose what to do")
    if len(ids) > MOST_AT_ONCE:
        raise BadInput(f"{len(ids):,} batches are selected: choose at most {MOST_AT_ONCE:,} at once")
    async with parts.reader.relaxed() as conn:
        found = await queries.selected(conn, viewer.tenant_id, ids)
    if len(found) < len(ids):
        raise NotFound("There is no such batch")
    return found


async def _matching(parts: Parts, viewer: Viewer, asked: QueryParams) -> tuple[list[BatchRow], bool]:
    wanted = batch_filter.parse(" ".join(asked.getlist("q")))
    chosen = batches.chosen_by(viewer, wanted, {"view": asked.get("view", "open")})
    async with parts.reader.relaxed() as conn:
        return await queries.batches(conn, chosen, MOST_AT_ONCE)


ROUTES = (Route(ADDRESS, confirm, name="selected"), Route(ADDRESS, act, methods=["POST"]))
