"""`GET …/usage`, `usage/export`, `usage/explain`, `usage/compare`, `prices`, `latency`, `sessions`: what the account's requests
used, for accountants too, why the cost changed, two variants, the rate card, how long answers took, and how sessions grow.
Cloudflare has no such routes.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from app import clock
from app.api.deps import Caller, PartsDep
from app.api.envelope import success
from app.errors import BadInput
from app.metering import charges_csv, documents, explained, harvest, periods, reports, session_report, variants, windows
from app.metering.periods import Period
from app.metering.reports import Scope, UsageRow
from app.metering.spend_labels import LABEL
from app.quantities import seconds_of

router = APIRouter(prefix="/ai")

_BY = tuple(name for name in reports.DIMENSIONS if name != "account")
_SESSIONS_BY = tuple(name for name in session_report.DIMENSIONS if name != "account")
_EXPLAIN_BY = tuple(name for name in explained.BY if name != "account")
_MOST_DAYS = 400
_STEEPEST = 20  # sessions in one answer
_LENGTH = "[1-9][0-9]{0,2}[smh]|[1-9][0-9]?d"
_DAY = "20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_MONTH = "20[0-9]{2}-(0[1-9]|1[0-2])"
_PERIOD = f"^({_LENGTH}|{'|'.join(periods.NAMES)}|{_MONTH}|{_DAY}([.][.]{_DAY})?)$"


def _some_of(names: Sequence[str]) -> dict[str, Any]:
    each = "|".join(names)
    return {"pattern": f"^({each})(,({each}))*$"}


class _Zone(BaseModel):
    """`tz`: whose days and months, such as the time zone of a budget."""

    model_config = ConfigDict(extra="ignore")

    tz: str = Field("UTC", description="time zone of days and months, a name of the IANA database", max_length=64)


class _Since(_Zone):
    """`since`: how far back, like 90m, 24h or 7d, or a day, days, a month or a name like last-week. `month`: a month instead."""

    usual: ClassVar[str] = "24h"
    since: Annotated[str, Field(json_schema_extra={"pattern": _PERIOD})] | None = None
    month: Annotated[str, Field(json_schema_extra={"pattern": f"^{_MONTH}$"})] | None = None


class UsageQuery(_Since):
    """`by`: what to group by, separated by commas."""

    by: str = Field(",".join(reports.USUAL), json_schema_extra=_some_of(_BY))


class ExportQuery(_Since):
    """`format`: focus, or csv."""

    usual: ClassVar[str] = "last-month"
    format: str = Field("focus", json_schema_extra={"enum": list(charges_csv.FORMS)})


class SessionsQuery(_Since):
    """`by`: what to group by, separated by commas."""

    by: str = Field(",".join(session_report.USUAL), json_schema_extra=_some_of(_SESSIONS_BY))


class ExplainQuery(_Zone):
    """The two periods: a day, `DAY..DAY`, a month, a length of time that ends now, or a name like last-week."""

    before: str = Field("last-week", json_schema_extra={"pattern": _PERIOD})
    after: str = Field("this-week", json_schema_extra={"pattern": _PERIOD})
    by: str = Field("workflow", json_schema_extra={"enum": list(_EXPLAIN_BY)})


class OperatorUsageQuery(_Since):
    """`by`: what to group by, separated by commas; also the account."""

    by: str = Field(",".join(reports.USUAL), json_schema_extra=_some_of(tuple(reports.DIMENSIONS)))


class OperatorSessionsQuery(_Since):
    """`by`: what to group by, separated by commas; also the account."""

    by: str = Field(",".join(session_report.USUAL), json_schema_extra=_some_of(tuple(session_report.DIMENSIONS)))


class OperatorExplainQuery(ExplainQuery):
    """The two periods, and by what; also by account."""

    by: str = Field("workflow", json_schema_extra={"enum": list(explained.BY)})


class CompareQuery(_Since):
    """`a`, `b`: two values of the label `variant`; `workflow`: only this one."""

    usual: ClassVar[str] = "7d"
    a: str = Field(pattern=LABEL)
    b: str = Field(pattern=LABEL)
    workflow: str | None = Field(None, pattern=LABEL)


@router.get("/usage")
async def usage(tenant: Caller, parts: PartsDep, query: Annotated[UsageQuery, Query()]) -> Response:
    """What the account's requests used and cost, by labels, model, key or time; the most expensive group first."""
    return await usage_of(parts, query, tenant.tenant_id)


async def usage_of(parts: PartsDep, query: UsageQuery | OperatorUsageQuery, tenant_id: int | None) -> Response:
    """The usage of one account, or of all (None), which may be grouped by account too."""
    known = _BY if tenant_id is not None else tuple(reports.DIMENSIONS)
    by, scope = _names(query.by, known), _scope(query, tenant_id)
    async with parts.database.relaxed() as conn:
        rows = await reports.usage(conn, by, scope)
        harvested = await harvest.read(conn, scope, parts.catalogue)
    found = {"usage": [document(by, row) for row in rows], "harvested": [documents.harvest(row) for row in harvested]}
    return success({**_times(scope), **found})


@router.get("/prices")
async def prices(_: Caller, parts: PartsDep) -> Response:
    """The rate card: what a million tokens cost, by model and kind of work, and from when until when."""
    models = parts.catalogue.models
    return success([row for name in sorted(models) for row in documents.prices(models[name])])


@router.get("/usage/export")
async def export(tenant: Caller, parts: PartsDep, query: Annotated[ExportQuery, Query()]) -> Response:
    """What the account used on each day, as CSV: FOCUS 1.2, or a row for each line of the ledger."""
    return await exported(parts, query, tenant.tenant_id)


async def exported(parts: PartsDep, query: ExportQuery, tenant_id: int | None) -> Response:
    """The days of one account, or of all (None)."""
    if query.format not in charges_csv.FORMS:
        raise BadInput(
            f"format: must be one of {', '.join(charges_csv.FORMS)}, got {query.format[:40]!r}", param="format"
        )
    scope = _scope(query, tenant_id)
    async with parts.database.relaxed() as conn:
        charges = await reports.charges(conn, scope)
    text = await asyncio.to_thread(charges_csv.text, charges, query.format, parts.catalogue)
    return Response(text, media_type="text/csv")


@router.get("/usage/explain")
async def explain(tenant: Caller, parts: PartsDep, query: Annotated[ExplainQuery, Query()]) -> Response:
    """Why the account's cost changed from one period to another, in terms that add up; for each currency."""
    return await explained_of(parts, query, tenant.tenant_id)


async def explained_of(parts: PartsDep, query: ExplainQuery, tenant_id: int | None) -> Response:
    """Why the cost of one account changed, or that of all (None)."""
    known = _EXPLAIN_BY if tenant_id is not None else tuple(explained.BY)
    if query.by not in known:
        raise BadInput(f"by: must be one of {', '.join(known)}, got {query.by[:40]!r}", param="by")
    before, after = (_period(name, getattr(query, name), query.tz) for name in ("before", "after"))
    async with parts.database.relaxed() as conn:
        found = await explained.change(conn, query.by, before, after, tenant_id)
    changes = [documents.explanation(query.by, e.currency, e.before, e.after, e.terms) for e in found]
    return success({"before": _times(before), "after": _times(after), "changes": changes})


@router.get("/usage/compare")
async def compare(tenant: Caller, parts: PartsDep, query: Annotated[CompareQuery, Query()]) -> Response:
    """Compare two variants of the account's requests: latency, failures, cost, cached share, retries, with 95 % intervals."""
    scope = _scope(query, tenant.tenant_id)
    async with parts.database.relaxed() as conn:
        seen = await variants.compared(conn, scope, query.a, query.b, query.workflow)
    return success({**_times(scope), **await asyncio.to_thread(documents.comparison, seen)})


@router.get("/latency")
async def latency(tenant: Caller, parts: PartsDep, query: Annotated[UsageQuery, Query()]) -> Response:
    """How long the account's answers took: time to the first token and to the end, as quantiles with an error of 5 %."""
    by, scope = _names(query.by, _BY), _scope(query, tenant.tenant_id)
    async with parts.database.relaxed() as conn:
        rows = await reports.latencies(conn, by, scope)
    return success({**_times(scope), "latency": [documents.latency(by, row) for row in rows]})


@router.get("/sessions")
async def sessions(tenant: Caller, parts: PartsDep, query: Annotated[SessionsQuery, Query()]) -> Response:
    """How the prompts of the account's sessions grow, and the sessions that grow fastest; those of the last seven days."""
    return await sessions_of(parts, query, tenant.tenant_id)


async def sessions_of(parts: PartsDep, query: SessionsQuery | OperatorSessionsQuery, tenant_id: int | None) -> Response:
    """The sessions of one account, or of all (None), which may be grouped by account too."""
    known = _SESSIONS_BY if tenant_id is not None else tuple(session_report.DIMENSIONS)
    by, scope = _names(query.by, known), _scope(query, tenant_id)
    async with parts.database.relaxed() as conn:
        found = await session_report.read(conn, by, scope)
    groups = [documents.session_row(by, row) for row in session_report.grouped(found)]
    steepest = [documents.session(by, each) for each in found[:_STEEPEST]]
    return success({**_times(scope), "sessions": groups, "steepest": steepest})


def document(by: Sequence[str], row: UsageRow) -> dict[str, Any]:
    """A row as JSON: its group, requests, tokens, and cost in the currency, or null without a price."""
    used = row.counts
    again = ("requests", "ok", "repeats", "retried", "retried_ok", "yields", "engine_ms")
    tokens = {"prompt_tokens": used.prompt, "cached_tokens": used.cached, "completion_tokens": used.output}
    cost = None if row.cost is None else float(row.cost)
    counts = {name: getattr(used, name) for name in again}
    return {**dict(zip(by, row.group, strict=True)), **counts, **tokens, "cost": cost, "currency": row.currency}


def _names(by: str, known: Sequence[str]) -> tuple[str, ...]:
    names = tuple(by.split(","))
    if unknown := [name for name in names if name not in known]:
        raise BadInput(
            f"by: must be some of {', '.join(known)}, separated by commas, got {unknown[0][:40]!r}", param="by"
        )
    return names


def _scope(query: _Since, tenant_id: int | None) -> Scope:
    if query.month is None:
        return Scope(
            *_period("since", query.usual if query.since is None else query.since, query.tz), tenant_id, query.tz
        )
    if query.since is not None:
        raise BadInput("month: goes without since; give one of them", param="month")
    if not re.fullmatch(_MONTH, query.month):
        raise BadInput(f"month: must be a month like 2026-11, got {query.month[:40]!r}", param="month")
    return Scope(*_period("month", query.month, query.tz), tenant_id, query.tz)


def _period(name: str, text: str, tz: str) -> Period:
    if (seconds_of(text) or 0) > _MOST_DAYS * 86_400:
        raise BadInput(f"{name}: a length of time must be at most {_MOST_DAYS}d, got {text[:40]!r}", param=name)
    try:
        where = windows.zone(tz)
    except ValueError as error:
        raise BadInput(f"tz: {error}", param="tz") from error
    try:
        return periods.parse(text, clock.now(), where)
    except ValueError as error:
        raise BadInput(f"{name}: {error}", param=name) from error


def _times(of: Scope | Period) -> dict[str, Any]:
    return {"since": clock.iso(of.since), "until": clock.iso(of.until)}
