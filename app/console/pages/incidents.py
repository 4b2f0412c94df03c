"""Incidents: what broke, what changed, and in which order."""

from dataclasses import replace
from datetime import timedelta

from app import clock, places
from app.access.roles import Viewer
from app.batches.incidents import incident
from app.changes import service as changes
from app.changes.kinds import PRIVATE
from app.console.page import Page, Params
from app.console.parts import Parts
from app.console.views import incidents
from app.console.views.incidents import OF_VIEW, RANGES, USUAL_RANGE

PAGE_CHANGES = 50
MOST_DRAWN = 400  # changes that begin or end something, in the drawing of the whole time
_SLOW_SECONDS = 5.0


async def look(parts: Parts, viewer: Viewer, params: Params) -> incidents.Seen:
    """A page of changes, and those of the whole time that begin or end a trouble. Raises BadInput."""
    chosen = params.get("range", USUAL_RANGE) if params.get("range", USUAL_RANGE) in RANGES else USUAL_RANGE
    kinds = OF_VIEW.get(params.get("view", "all"), ())
    since = clock.now() - timedelta(seconds=RANGES[chosen][1])
    async with parts.reader.relaxed() as conn:
        found = await changes.page(
            conn,
            since=since,
            before=places.read(params.get("before"), places.number, "before"),
            kinds=kinds,
            subject=params.get("q") or None,
            tenant_id=viewer.tenant_id,
            limit=PAGE_CHANGES + 1,
        )

    async def drawn() -> list[changes.Change]:
        async with parts.reader.relaxed() as conn:
            return await changes.page(
                conn, since=since, kinds=OF_VIEW["trouble"], tenant_id=viewer.tenant_id, limit=MOST_DRAWN
            )

    if viewer.role.of_account:
        found = [_for_account(change) for change in found]
    recent = await parts.looks.at(("troubles", viewer.tenant_id, chosen), drawn, _SLOW_SECONDS)
    problems = (await parts.installation.status())["problems"]
    return incidents.Seen(found[:PAGE_CHANGES], len(found) > PAGE_CHANGES, recent, since, problems)


def _for_account(change: changes.Change) -> changes.Change:
    """A change without what only roles of the installation may see."""
    shown = incident(change, hidden=PRIVATE)
    return replace(change, subject=shown.subject, data={**shown.ids, **shown.facts})


PAGE = Page(
    "incidents",
    incidents.PATH,
    look,
    incidents.view,
    regions=("top", "problems", "lanes", "list"),
    params=("range", "view", "q", "before"),
)
