"""All engines, and one: what they do, what they leave to batch work, and why. An operator can drain them."""

import asyncio
from datetime import datetime, timedelta
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from app import clock, places
from app.access.roles import Viewer
from app.audit.acts import Act
from app.changes import service as changes
from app.changes.kinds import ChangeKind
from app.changes.service import Change
from app.console import queries_engines as queries
from app.console.page import Page, Params
from app.console.pages.acting import attempted
from app.console.parts import Parts, parts_of, viewer_of
from app.console.queries import EngineRow
from app.console.views import engine, engine_plots, engines, time_range
from app.console.views.engine_plots import Frame
from app.engines import service
from app.errors import AuthenticationError, NotFound
from app.headroom import decision_log, selftest
from app.headroom.gate_rules import HeadroomLimits
from app.headroom.samples import StoredSample
from app.headroom.selftest import SelfTestError

_SLOW_SECONDS = 10.0  # a sample comes so often
_FRESH = (
    (timedelta(hours=1), 10.0),
    (timedelta(days=1), 60.0),
    (timedelta.max, 300.0),
)  # a drawing of so long is at most so old
_GATES_SHOWN = "15m"  # a longer time is drawn from samples
_FIXED_SECONDS = 3600.0
_OUTSIDE_ONLY = {"step_seconds", "sync_prompt_tokens"}  # the scheduler inside sees to these in each step
_CHANGES = 8
_VERBS = {"drain": "drain", "drain-now": "drain now", "undrain": "undrain"}


async def look(parts: Parts, viewer: Viewer, params: Params) -> engines.Seen:
    """A page of the engines, and what each did lately."""
    chosen = time_range.given(params, clock.now(), engines.USUAL_RANGE)
    async with parts.reader.relaxed() as conn:
        found, more = await queries.engines(conn, params.get("after", ""))
    ids = [each.engine_id for each in found]

    async def tides() -> tuple[dict[int, list[queries.Tide]], Frame]:
        shown = engine_plots.frame(chosen, engines.POINTS)
        async with parts.reader.relaxed() as conn:
            return dict(await queries.tides(conn, ids, shown.start, shown.stretch, chosen.until)), shown

    fresh = next(each for longest, each in _FRESH if chosen.length <= longest)
    drawn, shown = await parts.looks.at(("tides", tuple(ids), chosen.key), tides, fresh)
    return engines.Seen(found, more, drawn, shown)


async def find(parts: Parts, name: str) -> tuple[EngineRow, queries.EngineDetail]:
    """The engine of this name. Raises NotFound."""
    async with parts.reader.relaxed() as conn:
        found = await queries.engine(conn, name)
    if found is None:
        raise NotFound("There is no such engine")
    return found


async def look_at_one(parts: Parts, viewer: Viewer, params: Params) -> engine.Seen:
    """One engine: its history, its decisions, its changes. Raises NotFound, BadInput."""
    row, detail = await find(parts, params["name"])
    chosen = time_range.given(params, clock.now(), engine.USUAL_RANGE)
    kind = params.get("log", "all") if params.get("log", "all") in decision_log.KINDS else "all"
    before = places.read(params.get("before"), places.number, "before")
    shown = engine_plots.frame(chosen, engine.POINTS)
    async with parts.reader.relaxed() as conn:
        log = await decision_log.recent(conn, row.engine_id, engine.MOST_DECISIONS + 1, kind=kind, before=before)
        gates = await queries.gates(conn, row.engine_id, shown.start) if chosen.name == _GATES_SHOWN else None
    whole = gates if gates is not None and len(gates) < queries.MOST_GATES else None

    async def slow() -> _History:
        async with parts.reader.relaxed() as conn:
            begun = (await queries.begun(conn, [row.engine_id])).get(row.engine_id)
            replacing = await changes.page(conn, subject=row.name, kinds=[ChangeKind.ENGINE_REPLACED], limit=1)
            replaced = replacing[0].at if replacing else None
            start = max(shown.start, replaced) if replaced else shown.start
            begun = max(begun, replaced) if begun and replaced else begun
            drawn = await queries.history(conn, row.engine_id, start, engine.POINTS, chosen.until)
            latest = await queries.latest(conn, row.engine_id)
            day = await queries.day(conn, row.engine_id, begun or clock.now())
            since = clock.now() - timedelta(days=7)
            happened = await changes.page(
                conn, subject=row.name, since=since, tenant_id=viewer.tenant_id, limit=_CHANGES
            )
        return _History(drawn, latest, day, happened, shown, begun, replaced)

    past = await parts.looks.at(("engine", row.engine_id, chosen.key, viewer.tenant_id), slow, _SLOW_SECONDS)
    return engine.Seen(
        engine=row,
        detail=detail,
        samples=past.samples,
        latest=past.latest,
        gates=whole,
        day=past.day,
        decisions=log[: engine.MOST_DECISIONS],
        more=len(log) > engine.MOST_DECISIONS,
        changes=past.changes,
        closings=await closings(parts, row),
        kv_ceiling=parts.settings.kv_ceiling,
        shown=past.shown,
        begun=past.begun,
        replaced=past.replaced,
    )


class _History(NamedTuple):
    """What is read of an engine as seldom as it changes."""

    samples: list[StoredSample]
    latest: StoredSample | None
    day: queries.Day
    changes: list[Change]
    shown: Frame
    begun: datetime | None
    replaced: datetime | None


async def closings(parts: Parts, row: EngineRow) -> list[tuple[str, float]]:
    """At which value each signal closes the gate of an engine of so many slots, by the settings here."""

    async def prove() -> list[tuple[str, float]]:
        try:
            proven = await asyncio.to_thread(selftest.prove, HeadroomLimits.of(parts.settings, row.slots))
        except SelfTestError:
            return []
        outside = row.protection != "inside"
        return [(each.signal, each.closes_at) for each in proven if outside or each.signal not in _OUTSIDE_ONLY]

    return await parts.looks.at(("closings", row.slots, row.protection), prove, _FIXED_SECONDS)


async def act(request: Request) -> Response:
    """Drain or undrain an engine."""
    parts, viewer, name = parts_of(request), viewer_of(request), str(request.path_params["name"])
    verb = _VERBS.get(str(request.path_params["verb"]))
    await find(parts, name)
    if verb is None:
        raise NotFound("There is no such action")
    if not viewer.role.acts or viewer.role.of_account:
        raise AuthenticationError(f"As {viewer.role} you cannot {verb} an engine; ask an operator", status=403)

    async def change() -> bool:
        async with parts.database.durable() as conn:
            return await service.change_intake(conn, name, verb)  # type: ignore[arg-type]

    await attempted(parts, viewer, Act(f"engine.{verb.replace(' ', '_')}"), name, None, change)
    return RedirectResponse(f"{engines.PATH}/{name}?did={'undrained' if verb == 'undrain' else 'drained'}", 303)


PAGE = Page(
    "engines",
    engines.PATH,
    look,
    lambda seen, viewer, params, now: engines.view(seen, params, now),
    regions=("top", "figures", "tide"),
    params=(*time_range.PARAMS, "after"),
)
ONE = Page(
    "engine",
    f"{engines.PATH}/{{name}}",
    look_at_one,
    engine.view,
    regions=("top", "acts", "panels", "side", "log"),
    params=("name", *time_range.PARAMS, "log", "before"),
    active=engines.PATH,
)
ROUTES = (Route(f"{engines.PATH}/{{name}}/{{verb}}", act, methods=["POST"]),)
