"""Now: are synchronous callers protected, what do engines do, what waits and until when, and what do batches wait for."""

from app import clock
from app.access.roles import Viewer
from app.batches import incidents, protection, queue_outlook
from app.batches.incidents import Incident
from app.changes.service import ChangePosition
from app.console import queries, queries_engines
from app.console.page import Page, Params
from app.console.parts import Parts
from app.console.queries import EngineRow, WaitRow
from app.console.views import now, time_range
from app.console.views.time_range import TimeRange

_HISTORY_SECONDS = 10.0  # as often as a sample comes
_WAITS_SECONDS = 5.0
_POINTS = 120
_PLOT_POINTS = 30  # a stretch of an hour has enough streams for a quantile
_MOST_INCIDENTS = 8


async def look(parts: Parts, viewer: Viewer, params: Params) -> now.Seen:
    """Engines and counts now; history, latencies, queue and events as old as they may be."""
    shown = time_range.given(params, clock.now(), now.USUAL_RANGE)
    async with parts.reader.relaxed() as conn:
        engines = await queries.engines(conn)
        counts = await queries.rail_counts(conn, viewer.tenant_id)
    at, tenant_id, key = parts.looks.at, viewer.tenant_id, shown.key
    drawn = await at(("drawn", key), lambda: _drawn(parts, engines, shown), _HISTORY_SECONDS)
    queue = await at(("queue", tenant_id), lambda: _queue(parts, tenant_id), _WAITS_SECONDS)
    waits = await at(("waits", tenant_id), lambda: _waits(parts, tenant_id), _WAITS_SECONDS)
    events = await at(("events", tenant_id, key), lambda: _incidents(parts, tenant_id, shown), _WAITS_SECONDS)
    problems = (await parts.installation.status())["problems"]
    return now.Seen(engines, counts.open_batches, drawn, queue, waits, events, problems)


async def _drawn(parts: Parts, engines: list[EngineRow], shown: TimeRange) -> now.Drawn:
    history = {}
    async with parts.reader.relaxed() as conn:
        for each in engines:
            history[each.engine_id] = await queries_engines.history(
                conn, each.engine_id, shown.start, _POINTS, shown.until
            )
    async with parts.reader.relaxed() as conn:
        calls = await protection.read(conn, shown.start, _PLOT_POINTS, until=shown.until)
    return now.Drawn(shown, history, calls)


async def _queue(parts: Parts, tenant_id: int | None) -> now.Queue:
    async with parts.reader.relaxed() as conn:
        return now.Queue(clock.now(), await queue_outlook.read(conn, parts.catalogue, tenant_id))


async def _waits(parts: Parts, tenant_id: int | None) -> list[WaitRow]:
    async with parts.reader.relaxed() as conn:
        return await queries.waits(conn, tenant_id)


async def _incidents(parts: Parts, tenant_id: int | None, shown: TimeRange) -> list[Incident]:
    before = None if shown.until is None else ChangePosition(shown.until, 0)
    async with parts.reader.relaxed() as conn:
        return await incidents.timeline(
            conn, since=shown.start, before=before, tenant_id=tenant_id, limit=_MOST_INCIDENTS
        )


PAGE = Page(
    "now",
    now.PATH,
    look,
    now.view,
    regions=("top", "problems", "figures", "tide", "calls", "queue", "waits", "events"),
    params=time_range.PARAMS,
)
