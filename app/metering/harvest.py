"""What was harvested: the usage of queued work, with what it cost, and what calls would have cost instead.

The list price is that of synchronous requests on the day of the usage, as the rate card of the model has it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

from app.db.pool import Connection
from app.engines.catalogue import Catalogue
from app.engines.rate_card import Work
from app.metering import reports, windows
from app.metering.lines import UNQUEUED
from app.metering.money import TokenPrice
from app.metering.reports import Scope, UsageRow
from app.usage_counts import UsageCounts

_LEAST_HOURS = 0.1


@dataclass(slots=True)
class Harvest:
    """The queued work of one currency. Costs None: its models have no price."""

    currency: str | None
    cost: Decimal | None = None
    list_cost: Decimal | None = None
    counts: UsageCounts = field(default_factory=UsageCounts)

    def add(self, row: UsageRow, listed: Decimal | None) -> None:
        """Count a group of this currency in."""
        self.counts += row.counts
        if row.cost is not None:
            self.cost = (self.cost or Decimal()) + row.cost
            self.list_cost = (self.list_cost or Decimal()) + (row.cost if listed is None else listed)


def engine_hours(rows: Iterable[Harvest]) -> str:
    """For how long engines worked on it, in words. Empty: no time was booked."""
    hours = sum(row.counts.engine_ms for row in rows) / 3_600_000
    return "" if not hours else f"{hours:,.1f} engine hours" if hours >= _LEAST_HOURS else "less than 0.1 engine hours"


def list_price(models: Catalogue, name: str, currency: str | None, day: date, tz: str) -> TokenPrice | None:
    """What synchronous requests of a model cost on a day; None: its card has no such price in this currency."""
    model = models.resolve(name)
    price = model.price_of(Work.SYNC, windows.start(windows.zone(tz), day)) if model else None
    return TokenPrice.of(price, f"price of {name}") if price and price.currency == currency else None


def _exact(used: UsageCounts, price: TokenPrice) -> Decimal:
    """The cost of these tokens without any rounding, as the database computes that of a report."""
    whole = (used.prompt - used.cached) * price.input + used.cached * price.cached + used.output * price.output
    return Decimal(whole).scaleb(-12)


async def read(conn: Connection, scope: Scope, models: Catalogue) -> list[Harvest]:
    """What queued work used, by currency: all of it was done in the headroom of engines."""
    found: dict[str | None, Harvest] = {}
    for row in await reports.usage(conn, ("kind", "model", "day"), scope):
        kind, model, day = row.group
        if kind in UNQUEUED:
            continue
        price = list_price(models, model, row.currency, date.fromisoformat(day), scope.tz)
        found.setdefault(row.currency, Harvest(row.currency)).add(row, _exact(row.counts, price) if price else None)
    return list(found.values())
