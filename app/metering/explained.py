"""Reads two periods from the ledger and explains the change of their cost, one currency at a time."""

from dataclasses import dataclass

from app.db.pool import Connection
from app.metering import reports
from app.metering.explain import Term, Usage, explain
from app.metering.periods import Period
from app.metering.reports import NO_PRICE, Scope

BY = tuple(name for name in reports.DIMENSIONS if name not in ("model", "kind", "day", "hour"))


@dataclass(frozen=True, slots=True)
class Explanation:
    """Amounts in 10^-9 of the currency. The terms add up to `after` - `before`."""

    currency: str
    before: int
    after: int
    terms: list[Term]


async def change(
    conn: Connection, by: str, before: Period, after: Period, tenant_id: int | None = None
) -> list[Explanation]:
    """Why the cost changed, by one of BY, model and kind; for each currency, the largest change first."""
    old = await reports.priced_usage(conn, by, Scope(*before, tenant_id))
    new = await reports.priced_usage(conn, by, Scope(*after, tenant_id))
    currencies = sorted({usage.price.currency for usage in (*old, *new)} - {NO_PRICE.currency})
    found = [_of(currency, old, new) for currency in currencies]
    return sorted(found, key=lambda each: -abs(each.after - each.before))


def _of(currency: str, old: list[Usage], new: list[Usage]) -> Explanation:
    """Models without a price count as requests of their workflow in every currency."""
    before, after = (
        [usage for usage in usages if usage.price.currency in (currency, NO_PRICE.currency)] for usages in (old, new)
    )
    return Explanation(currency, _cost(before), _cost(after), explain(before, after))


def _cost(usages: list[Usage]) -> int:
    return sum(usage.cost for usage in usages)
