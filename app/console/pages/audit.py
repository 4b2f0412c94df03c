"""Audit: who did, revealed or was refused what in the console."""

from app import places
from app.access.roles import Viewer
from app.audit import log
from app.console.page import Page, Params
from app.console.parts import Parts
from app.console.views import audit
from app.errors import BadInput


async def look(parts: Parts, viewer: Viewer, params: Params) -> list[log.Entry]:
    """One page of the log, newest first; for the roles of an account, its rows. Raises BadInput."""
    before, wanted = places.parsed(params.get("before"), places.number, "before"), audit.wanted(params.get("q", ""))
    if viewer.account and wanted.account not in (None, viewer.account):
        raise BadInput(f"account: only entries of {viewer.account} are shown to you; take this part of the filter away")
    account = viewer.account or wanted.account
    async with parts.reader.relaxed() as conn:
        return await log.latest(conn, account=account, target=wanted.target, before=before, limit=audit.SHOWN + 1)


PAGE = Page("audit", audit.PATH, look, audit.view, params=("q", "before"))
