"""Now: are synchronous callers protected, what do engines do, and what do batches wait for."""

from datetime import timedelta

from app import clock
from app.access.roles import Viewer
from app.batches import incidents, protection
from app.batches.incidents import Incident
from app.batches.protection import Protection
from app.console import queries
from app.console.page import Page, Params
from app.console.parts import Parts
from app.console.queries import EngineRow, WaitRow
from app.console.views import now
from app.headroom import samples
from app.headroom.samples import StoredSample

_HISTORY_SECONDS = 10.0  # as often as a sample comes
_WAITS_SECONDS = 5.0
_POINTS = 120
_PLOT_POINTS = 60
_MOST_INCIDENTS = 8


async def look(parts: Parts, viewer: Viewer, params: Params) -> now.Seen:
    """Engines and counts now; history, latencies and events as old as they may be."""
    span = now.span_of(params)
    async with parts.reader.relaxed() as conn:
        engines = await queries.engines(conn)
        pools = await queries.pools(conn)
        counts = await queries.rail_counts(conn, viewer.tenant_id)
    at, tenant_id = parts.looks.at, viewer.tenant_id
    history = await at(("tide", span), lambda: _history(parts, engines, span), _HISTORY_SECONDS)
    calls = await at(("protection", span), lambda: _protection(parts, span), _HISTORY_SECONDS)
    waits = await at(("waits", tenant_id), lambda: _waits(parts, tenant_id), _WAITS_SECONDS)
    events = await at(("events", tenant_id, span), lambda: _incidents(parts, tenant_id, span), _WAITS_SECONDS)
    return now.Seen(engines, pools, counts.open_batches, waits, history, calls, events, span)


async def _history(parts: Parts, engines: list[EngineRow], span: timedelta) -> dict[int, list[StoredSample]]:
    since = clock.now() - span
    async with parts.reader.relaxed() as conn:
        return {each.engine_id: await samples.history(conn, each.engine_id, since, _POINTS) for each in engines}


async def _protection(parts: Parts, span: timedelta) -> Protection:
    async with parts.reader.relaxed() as conn:
        return await protection.read(conn, clock.now() - span, _PLOT_POINTS)


async def _waits(parts: Parts, tenant_id: int | None) -> list[WaitRow]:
    async with parts.reader.relaxed() as conn:
        return await queries.waits(conn, tenant_id)


async def _incidents(parts: Parts, tenant_id: int | None, span: timedelta) -> list[Incident]:
    async with parts.reader.relaxed() as conn:
        return await incidents.timeline(conn, since=clock.now() - span, tenant_id=tenant_id, limit=_MOST_INCIDENTS)


PAGE = Page(
    "now",
    "/console/now",
    look,
    now.view,
    regions=("top", "figures", "tide", "calls", "waits", "events"),
    params=("range",),
)
