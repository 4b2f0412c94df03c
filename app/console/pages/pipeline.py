"""One pipeline, what somebody does to it, and the lineage of a line of its input."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from app import clock
from app.access.roles import Viewer
from app.audit.acts import Act
from app.console import forms
from app.console.page import Page, Params, whole
from app.console.pages.acting import attempted
from app.console.pages.actions import DID, refuse
from app.console.parts import Parts, parts_of, viewer_of
from app.console.views import lineage, pipeline
from app.console.views.pipeline_filter import PATH
from app.errors import BadInput, NotFound
from app.pipelines import ids, lifecycle, listing, outlook, reads, retrying
from app.pipelines import lineage as traces
from app.pipelines.listing import Listed
from app.pipelines.reads import PipelineSight
from app.tenants.service import Tenant

_LONGEST = 512  # characters of a custom_id
_MOST_USD = 1e9


async def find(parts: Parts, viewer: Viewer, params: Params) -> Listed:
    """The pipeline that the address names. Raises NotFound: it does not exist, or is another account's."""
    request_id = ids.parse_id(params.get("pipeline_id", ""))
    row = None
    if request_id is not None:
        async with parts.reader.relaxed() as conn:
            row = await listing.one(conn, viewer.tenant_id, request_id)
    if row is None:
        raise NotFound("There is no such pipeline")
    return row


def _owner(found: Listed) -> Tenant:
    return Tenant(found.tenant_id, found.account)


async def _sight(parts: Parts, found: Listed) -> PipelineSight:
    return await reads.sight(parts.reader, parts.settings, _owner(found), found.row)


async def look(parts: Parts, viewer: Viewer, params: Params) -> pipeline.Seen:
    """The pipeline with its stages. Raises NotFound, KeysUnavailable."""
    found = await find(parts, viewer, params)
    sight = await _sight(parts, found)
    seen = await outlook.of(parts.reader, parts.queued_catalogue, _owner(found), sight)
    return pipeline.Seen(found, seen, parts.queued_catalogue)


async def act(request: Request) -> Response:
    """Pause, resume, cancel or retry a pipeline as a whole."""
    parts, viewer, verb = parts_of(request), viewer_of(request), str(request.path_params["verb"])
    found = await find(parts, viewer, {"pipeline_id": str(request.path_params["pipeline_id"])})
    if verb not in DID:
        raise NotFound("There is no such action")
    if not viewer.role.acts:
        raise refuse(viewer, f"{verb} a pipeline")
    form = {name: str(value) for name, value in (await forms.read(request)).items()}
    usd = _budget(form.get("number", "")) if verb == "resume" else None
    of_run = int(form["run"]) if form.get("run", "").isdecimal() else None
    name, tenant, request_id = found.row.public_id, _owner(found), found.row.request_id

    async def do() -> object:
        if verb == "retry":
            return await retrying.retry(
                parts.database, parts.settings, parts.queued_catalogue, tenant, request_id, of_run
            )
        await lifecycle.change_state(parts.database, tenant, request_id, verb, usd)  # type: ignore[arg-type]
        return None

    await attempted(parts, viewer, Act(f"pipeline.{verb}"), name, found.account, do)
    return RedirectResponse(f"{PATH}/{name}?did=pipeline-{DID[verb]}", 303)


def _budget(written: str) -> float | None:
    """The new budget of a form; empty: the old one. Raises BadInput."""
    if not written.strip():
        return None
    try:
        usd = float(written)
    except ValueError:
        usd = -1.0
    if not 0 < usd <= _MOST_USD:
        raise BadInput(f"budget: must be an amount above 0, got {written[:20]!r}")
    return usd


async def show_item(request: Request) -> Response:
    """What became of one line of the input. Raises NotFound, KeysUnavailable."""
    parts, viewer = parts_of(request), viewer_of(request)
    found = await find(parts, viewer, {"pipeline_id": str(request.path_params["pipeline_id"])})
    custom_id = request.query_params.get("custom_id", "").strip()[:_LONGEST]
    if not custom_id or "\x00" in custom_id:
        raise BadInput("custom_id: say which line of the input")
    seen = await traces.trace(parts.reader, parts.settings, await _sight(parts, found), custom_id)
    shown = lineage.view(lineage.Seen(found, custom_id, seen, parts.queued_catalogue), viewer, clock.now())
    return await whole(request, "lineage", shown, active=PATH)


PAGE = Page(
    "pipeline",
    f"{PATH}/{{pipeline_id}}",
    look,
    pipeline.view,
    regions=("top", "acts", "figures", "flow", "stages"),
    params=("pipeline_id",),
    active=PATH,
)
ROUTES = (
    Route(f"{PATH}/{{pipeline_id}}/item", show_item, name="lineage"),
    Route(f"{PATH}/{{pipeline_id}}/{{verb}}", act, methods=["POST"]),
)
