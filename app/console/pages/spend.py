"""Spend: what each day cost and whose it was, why a day cost more, the budgets, and what was harvested."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app import clock
from app.access.roles import Viewer
from app.budgets import service as budgets
from app.budgets.rules import Budget
from app.console.page import Page, Params
from app.console.parts import Parts, parts_of, viewer_of
from app.console.views import spend
from app.console.views.spend import DAYS, Seen
from app.db.pool import Connection
from app.errors import BadInput
from app.metering import charges_csv, explained, harvest, reports, windows
from app.metering.periods import Period
from app.metering.reports import Scope
from app.tenants import service as tenants

_FRESH_SECONDS = 30.0  # usage is counted by hours, so a look may be older than on other pages


async def look(parts: Parts, viewer: Viewer, params: Params) -> Seen:
    """Four weeks by day, the week's prices, why the day changed, and the budgets. Days are those of the budgets' time zone, if
    they have one in common. Raises BadInput.
    """
    by = spend.grouping(params.get("by", ""), one_account=viewer.tenant_id is not None)
    day = _day(params.get("day", ""))
    key = ("spend", viewer.tenant_id, by, day)
    return await parts.looks.at(key, lambda: _look(parts, viewer.tenant_id, by, day), _FRESH_SECONDS)


async def _look(parts: Parts, tenant_id: int | None, by: str, day: date | None) -> Seen:
    async with parts.reader.relaxed() as conn:
        held = await _budgets(conn, tenant_id)
        names = await tenants.every(conn) if tenant_id is None and held else ()
        tz = _zone(held)
        now = clock.now().astimezone(windows.zone(tz))
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        week = Scope(midnight - timedelta(days=6), now, tenant_id, tz)
        rows = await reports.usage(conn, ("day", by), Scope(midnight - timedelta(days=DAYS - 1), now, tenant_id, tz))
        harvested = await harvest.read(conn, week, parts.catalogue)
        priced = await reports.priced_usage(conn, "workflow", week)
        days = spend.days_until(midnight.date())
        if day is not None and day not in days:
            raise BadInput(f"day: must be one of the last {DAYS} days, got '{day}'")
        table = spend.Table.of(rows, days)
        chosen = day or table.remarkable_day(now)
        change = await _change(conn, by, chosen, midnight, now, tenant_id) if chosen else []
    accounts = {each.tenant_id: each.account_id for each in names}
    return Seen(by, table, harvested, priced, held, chosen, change, _explained_by(by), accounts, tz)


async def _budgets(conn: Connection, tenant_id: int | None) -> Sequence[Budget]:
    return await (budgets.every(conn, shown=True) if tenant_id is None else budgets.listing(conn, tenant_id))


def _zone(held: Sequence[Budget]) -> str:
    zones = {budget.tz for budget in held}
    return zones.pop() if len(zones) == 1 else "UTC"


async def _change(
    conn: Connection, by: str, day: date, midnight: datetime, now: datetime, tenant_id: int | None
) -> list[explained.Explanation]:
    begin = datetime(day.year, day.month, day.day, tzinfo=midnight.tzinfo)
    length = min(timedelta(days=1), now - begin)  # today is compared with the same hours
    before = begin - timedelta(days=7)
    return await explained.change(
        conn, _explained_by(by), Period(before, before + length), Period(begin, begin + length), tenant_id
    )


def _explained_by(by: str) -> str:
    """By what a change is explained. Each term has its model in any case."""
    return by if by in explained.BY else "workflow"


def _day(written: str) -> date | None:
    if not written:
        return None
    try:
        return date.fromisoformat(written)
    except ValueError:
        raise BadInput(f"day: must be a date like 2026-11-23, got {written[:20]!r}") from None


async def download(request: Request) -> Response:
    """The charges of the shown days, in the same time zone, as CSV: FOCUS 1.2, or a row for each line of the ledger."""
    parts, viewer = parts_of(request), viewer_of(request)
    form = request.query_params.get("format", "csv")
    if form not in charges_csv.FORMS:
        raise BadInput(f"format: must be one of {', '.join(charges_csv.FORMS)}, got {form[:20]!r}")
    async with parts.reader.relaxed() as conn:
        tz = _zone(await _budgets(conn, viewer.tenant_id))
        now = clock.now().astimezone(windows.zone(tz))
        since = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=DAYS - 1)
        charges = await reports.charges(conn, Scope(since, now, viewer.tenant_id, tz))
    headers = {
        "content-disposition": f'attachment; filename="slackwater-{form}-{now:%Y-%m-%d}.csv"',
        "x-content-type-options": "nosniff",
    }
    return Response(charges_csv.text(charges, form, parts.catalogue), media_type="text/csv", headers=headers)


PAGE = Page("spend", "/console/spend", look, spend.view, params=("by", "day"))
ROUTES = (Route("/console/spend/export", download),)
