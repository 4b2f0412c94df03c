"""Now: are synchronous callers protected, what do engines do, and what do batches wait for."""

from app.access.roles import Viewer
from app.batches.why_chain import MOST_TOGETHER, explain
from app.console import queries
from app.console.page import Page, Params
from app.console.parts import Parts
from app.console.views import now
from app.queue import reads

_WAITS_SECONDS = 5.0


async def look(parts: Parts, viewer: Viewer, params: Params) -> now.Seen:
    """Engines, pools, and the reasons of the oldest open batches."""
    async with parts.reader.relaxed() as conn:
        engines = await queries.engines(conn)
        pools = await queries.pools(conn)
        counts = await queries.rail_counts(conn, viewer.tenant_id)
    waits = await parts.looks.at(("waits", viewer.tenant_id), lambda: _waits(parts, viewer.tenant_id), _WAITS_SECONDS)
    return now.Seen(engines, pools, counts.open_batches, waits)


async def _waits(parts: Parts, tenant_id: int | None) -> list[now.Wait]:
    async with parts.reader.relaxed() as conn:
        found = await queries.open_batches(conn, tenant_id, MOST_TOGETHER)
    sights = await reads.snapshots(parts.reader, found) if found else []
    whys = [explain(*sight) for sight in sights if sight is not None]
    return [now.Wait.of(why) for why in whys if why.status.finalized_at is None]


PAGE = Page("now", "/console/now", look, now.view, regions=("top", "figures", "tide", "waits"), params=("range",))
