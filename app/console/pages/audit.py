"""Audit: who did, revealed or was refused what in the console."""

from app.access.roles import Viewer
from app.audit import log
from app.console.page import Page, Params
from app.console.parts import Parts
from app.console.views import audit
from app.errors import BadInput


async def look(parts: Parts, viewer: Viewer, params: Params) -> list[log.Entry]:
    """One page of the log, newest first; for the roles of an account, its rows. Raises BadInput."""
    before = params.get("before", "")
    if before and not (before.isdecimal() and len(before) < 19):
        raise BadInput(f"before: must be the number of an entry, got {before[:20]!r}")
    async with parts.reader.relaxed() as conn:
        return await log.latest(
            conn, account=viewer.account, before=int(before) if before else None, limit=audit.SHOWN + 1
        )


PAGE = Page("audit", "/console/audit", look, audit.view, params=("before",))
