"""`…/ai/incidents`, `…/ai/engines/{name}/history`, `…/decisions`, `…/ai/protection`: what happened, what each engine did and why.

Cloudflare has no such routes. An account sees the installation as `GET /status` shows it: without URLs, hosts and other accounts.
"""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from app import clock, places
from app.api.deps import Caller, PartsDep
from app.api.envelope import success
from app.api.parameter_limits import Text, cursor
from app.api.workers_ai.why import decision_view
from app.batches import incidents, protection
from app.batches.protection import Protection
from app.db.pool import Connection
from app.engines import service as engines
from app.errors import BadInput, NotFound
from app.headroom import decision_log, samples
from app.quantities import seconds_of

router = APIRouter(prefix="/ai")

_MOST_SECONDS = 99 * 86_400
_LENGTH = {"pattern": "^([1-9][0-9]{0,2}[smh]|[1-9][0-9]?d)$", "maxLength": 10}
Since = Annotated[
    str,
    Field(
        json_schema_extra=_LENGTH,
        description="a length of time like 90m, 24h or 7d",
    ),
]


_PLACES = f"^{places.TIME}{places.NUMBER}$"


class IncidentQuery(BaseModel):
    """The query of the timeline."""

    model_config = ConfigDict(extra="forbid")

    since: Since = "24h"
    trouble: bool = Field(False, description="only what stopped: deaths, closed gates, open breakers, spent budgets")
    subject: Text | None = Field(None, description="of this engine, part, webhook or budget")
    limit: int = Field(100, ge=1, le=incidents.MOST, description="incidents in one page")
    after: str | None = cursor(_PLACES)


class HistoryQuery(BaseModel):
    """The query of a history."""

    model_config = ConfigDict(extra="forbid")

    since: Since = "1h"
    points: int = Field(120, ge=1, le=samples.MOST_POINTS, description="at most so many points of time")


class DecisionQuery(BaseModel):
    """The query of an engine's decisions."""

    model_config = ConfigDict(extra="forbid")

    kind: str = Field(
        "all",
        json_schema_extra={"enum": list(decision_log.KINDS)},
        description="all, those that closed the gate, or failures",
    )
    limit: int = Field(50, ge=1, le=200, description="decisions in one page")
    after: str | None = cursor(_PLACES)


class ProtectionQuery(HistoryQuery):
    """The query of the protection."""

    model: Text | None = Field(None, description="a name or an alias; default: all models")


@router.get("/incidents")
async def timeline(tenant: Caller, parts: PartsDep, query: Annotated[IncidentQuery, Query()]) -> Response:
    """What died, closed, stopped, started and changed in the installation and for this account, newest first, in words, with the
    ids of batches, engines, deliveries and traces.
    """
    return await incidents_page(parts, query, tenant.tenant_id)


async def incidents_page(parts: PartsDep, query: IncidentQuery, tenant_id: int | None) -> Response:
    """A page of the timeline as an account may see it, or the operator (None)."""
    before = places.read(query.after, places.number)
    async with parts.database.relaxed() as conn:
        found = await incidents.timeline(
            conn,
            since=moment(query.since),
            before=before,
            only_trouble=query.trouble,
            subject=query.subject,
            tenant_id=tenant_id,
            limit=query.limit + 1,
        )
    page = found[: query.limit]
    cursor = places.written(*page[-1].position) if len(found) > len(page) else None
    info = {"count": len(page), "per_page": query.limit, "cursor": cursor}
    return success([incidents.document(each) for each in page], result_info=info)


@router.get("/engines/{name}/history")
async def history(name: str, _: Caller, parts: PartsDep, query: Annotated[HistoryQuery, Query()]) -> Response:
    """What an engine did: tokens for batch requests and for all others, requests, memory, step times, and why its gate was as it
    was. One row each ten seconds for 26 hours, each minute for 35 days, in at most `points` stretches of one length.
    """
    return await history_page(parts, name, query)


async def history_page(parts: PartsDep, name: str, query: HistoryQuery) -> Response:
    """What an engine did, which an account sees as the operator does."""
    async with parts.database.relaxed() as conn:
        found = await samples.history(conn, await _engine_id(conn, name), moment(query.since), query.points)
    rows = [{"at": clock.iso(each.at), **_rounded(asdict(each.sample))} for each in found]
    return success({"engine": name, "samples": rows})


@router.get("/engines/{name}/decisions")
async def decisions(name: str, _: Caller, parts: PartsDep, query: Annotated[DecisionQuery, Query()]) -> Response:
    """Each change of what an engine leaves to batch work, newest first: what it was, what it became, and the comparison that
    decided. Of a `kind` other than all, a page is from 2,000 decisions at most.
    """
    return await decisions_page(parts, name, query)


async def decisions_page(parts: PartsDep, name: str, query: DecisionQuery) -> Response:
    """A page of an engine's decisions, which an account sees as the operator does."""
    if query.kind not in decision_log.KINDS:
        raise BadInput(f"kind: must be one of {', '.join(decision_log.KINDS)}, got {query.kind[:20]}", param="kind")
    before = places.read(query.after, places.number)
    async with parts.database.relaxed() as conn:
        engine_id = await _engine_id(conn, name)
        found = await decision_log.recent(conn, engine_id, query.limit + 1, kind=query.kind, before=before)
    page = found[: query.limit]
    cursor = places.written(page[-1].at, page[-1].decision_id) if len(found) > len(page) else None
    info = {"count": len(page), "per_page": query.limit, "cursor": cursor}
    return success([decision_view(name, each) for each in page], result_info=info)


async def _engine_id(conn: Connection, name: str) -> int:
    found = await engines.id_of(conn, name)
    if found is None:
        raise NotFound(f"No engine {name[:64]}; `GET /status` lists those there are")
    return found


@router.get("/protection")
async def protected(_: Caller, parts: PartsDep, query: Annotated[ProtectionQuery, Query()]) -> Response:
    """How long synchronous callers of the gateway wait for the first token and between tokens, in milliseconds.

    Beside batch work, alone, and as they usually do alone, at the same hours of the last seven days; null: not known. Only
    streamed answers are measured.
    """
    return await protection_of(parts, query)


async def protection_of(parts: PartsDep, query: ProtectionQuery) -> Response:
    """The protection, which an account sees as the operator does."""
    known = parts.catalogue.resolve(query.model) if query.model else None
    model = known.served if known else query.model
    async with parts.database.relaxed() as conn:
        found = await protection.read(conn, moment(query.since), query.points, model)
    return success(protection_view(found))


def moment(since: str) -> datetime:
    """The begin of a length of time that ends now. Raises BadInput."""
    seconds = seconds_of(since)
    if not seconds or seconds > _MOST_SECONDS:
        raise BadInput(
            f"since: must be a length of time like 90m, 24h or 7d, at most 99d, got {since[:20]}", param="since"
        )
    return clock.now() - timedelta(seconds=seconds)


def protection_view(found: Protection) -> dict[str, Any]:
    """The protection in the form that callers read."""
    return {
        "verdict": found.verdict,
        "headline": found.headline,
        "details": found.details,
        "first_token_ratio": _round(found.first_token_ratio),
        "gap_ratio": _round(found.gap_ratio),
        "all": _rounded(asdict(found.everything)),
        "beside": _rounded(asdict(found.beside)),
        "usual_alone": _rounded(asdict(found.alone)),
        "stretches": [
            {
                "at": clock.iso(each.start),
                "beside": _rounded(asdict(each.beside)),
                "alone": _rounded(asdict(each.alone)),
            }
            for each in found.stretches
        ],
    }


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _round(value) if isinstance(value, float) else value for name, value in values.items()}


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
