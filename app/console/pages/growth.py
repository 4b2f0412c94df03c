"""Sessions and families: whose prompts grow with each turn, and which prompts the prefix cache serves."""

from datetime import timedelta

from app import clock
from app.access.roles import Viewer
from app.console.page import Page, Params
from app.console.parts import Parts
from app.console.views import growth
from app.metering import reports, session_report
from app.metering.reports import Scope

_FRESH_SECONDS = 30.0


async def look(parts: Parts, viewer: Viewer, params: Params) -> growth.Seen:
    """The sessions and families of the last seven days."""
    return await parts.looks.at(("growth", viewer.tenant_id), lambda: _look(parts, viewer.tenant_id), _FRESH_SECONDS)


async def _look(parts: Parts, tenant_id: int | None) -> growth.Seen:
    now = clock.now()
    scope = Scope(now - timedelta(days=growth.DAYS), now, tenant_id)
    by = ("account", *session_report.USUAL)
    async with parts.reader.relaxed() as conn:
        sessions = await session_report.read(conn, by, scope)
        families = await reports.usage(conn, ("account", "workflow", "family"), scope)
    windows = {name: model.context_window for name, model in parts.catalogue.models.items()}
    return growth.Seen(sessions, families, windows)


PAGE = Page("growth", "/console/sessions", look, growth.view)
