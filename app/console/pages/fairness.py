"""Fairness: what each account is due of the engines, and what it got."""

from app.access.roles import Viewer
from app.batches import fair_shares
from app.console.page import Page, Params
from app.console.parts import Parts
from app.console.views import fairness

_SLOW_SECONDS = 30.0


async def look(parts: Parts, viewer: Viewer, params: Params) -> fairness.Seen:
    """The accounts with work, and what queued work used in this hour and the one before."""
    since = fair_shares.window()
    async with parts.reader.relaxed() as conn:
        rows = await fair_shares.accounts(conn)

    async def served() -> dict[tuple[str, int], int]:
        async with parts.reader.relaxed() as conn:
            return await fair_shares.served(conn, since)

    return fairness.Seen(rows, await parts.looks.at(("served", since), served, _SLOW_SECONDS), since)


PAGE = Page("fairness", fairness.PATH, look, fairness.view, regions=("top", "pools"))
