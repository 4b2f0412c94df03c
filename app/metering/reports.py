"""Reports on the ledger: usage, cost and latency by any part of a line, and the comparison of the ledger with the queue.

A period has its hours that begin within [since, until). `tenant_id` None: all accounts. Days are those of the scope's time zone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from app.db.pool import Connection
from app.metering import explain, money, report_sql, sketch, windows
from app.metering.explain import Group
from app.metering.money import TokenPrice
from app.usage_counts import UsageCounts

DIMENSIONS = tuple(report_sql.DIMENSIONS)
USUAL = ("workflow", "model")
NO_PRICE = TokenPrice(0, 0, 0, "")


class Scope(NamedTuple):
    """Whose usage, and of which time. `tz`: whose days and hours, a name of the IANA database."""

    since: datetime
    until: datetime
    tenant_id: int | None = None
    tz: str = "UTC"


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Usage of one group. `group`: its values in the order of the dimensions. `cost`: None if the models have no price."""

    group: tuple[str, ...]
    currency: str | None
    cost: Decimal | None
    counts: UsageCounts


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """Sketches of the answers of one group: time to the first token, and to the end. See `app.metering.sketch`."""

    group: tuple[str, ...]
    first_token: list[int] = field(default_factory=sketch.empty)
    duration: list[int] = field(default_factory=sketch.empty)


@dataclass(frozen=True, slots=True)
class Charge:
    """What one line used on one day of the time zone `tz`."""

    day: date
    account_id: str
    key_id: str
    workflow: str
    task: str
    critical: bool
    variant: str
    family: str
    model: str
    kind: str
    endpoint: str
    price: TokenPrice | None
    counts: UsageCounts
    tz: str = "UTC"


@dataclass(frozen=True, slots=True)
class Difference:
    """A count of an account that differs between the ledger and the queue."""

    account_id: str
    count: str
    ledger: int
    queue: int


async def usage(conn: Connection, by: Sequence[str], scope: Scope) -> list[UsageRow]:
    """Usage by these DIMENSIONS, the most expensive group first."""
    rows = await (await conn.execute(report_sql.usage(tuple(by)), scope._asdict())).fetchall()
    parts = len(by)
    groups = _Groups(by, scope)
    return [
        UsageRow(groups.of(row[:parts]), row[parts], row[parts + 1], UsageCounts(*row[parts + 2 :])) for row in rows
    ]


async def latencies(conn: Connection, by: Sequence[str], scope: Scope) -> list[LatencyRow]:
    """The latencies by these DIMENSIONS, the group with most answers first."""
    rows = await (await conn.execute(report_sql.latencies(tuple(by)), scope._asdict())).fetchall()
    groups, found = _Groups(by, scope), dict[tuple[str, ...], LatencyRow]()
    for *parts, name, index, count in rows:
        group = groups.of(parts)
        getattr(found.setdefault(group, LatencyRow(group)), name)[index] += count
    return sorted(found.values(), key=lambda row: (-sum(row.duration), -sum(row.first_token), row.group))


async def priced_usage(conn: Connection, by: str, scope: Scope) -> list[explain.Usage]:
    """The usage that explains a cost: by one of DIMENSIONS, which takes the place of the workflow, model, kind and price."""
    rows = await (await conn.execute(report_sql.by_price(by), scope._asdict())).fetchall()
    return [_priced(*row) for row in rows]


async def charges(conn: Connection, scope: Scope) -> list[Charge]:
    """What each line used on each day, in the order of the days."""
    rows = await (await conn.execute(report_sql.CHARGES, scope._asdict())).fetchall()
    return [_charge(scope.tz, *row) for row in rows]


async def check(conn: Connection) -> list[Difference]:
    """Where the usage of queued work is not what the queue has counted. Both are read in one snapshot."""
    rows = await (await conn.execute(report_sql.CHECK)).fetchall()
    return [Difference(*row) for row in rows]


class _Groups:
    """Groups as a reader has them: the database has hours of UTC, which are shown in the time zone of the scope."""

    def __init__(self, by: Sequence[str], scope: Scope) -> None:
        self._hours = [place for place, name in enumerate(by) if name == "hour" and scope.tz != "UTC"]
        self._zone = windows.zone(scope.tz)

    def of(self, parts: Sequence[str]) -> tuple[str, ...]:
        """The parts of one group."""
        group = list(parts)
        for place in self._hours:
            group[place] = datetime.fromisoformat(group[place]).astimezone(self._zone).isoformat(timespec="minutes")
        return tuple(group)


def _price(
    price_in: int | None, price_cached: int | None, price_out: int | None, currency: str | None
) -> TokenPrice | None:
    if price_in is None or price_cached is None or price_out is None or currency is None:
        return None
    return TokenPrice(price_in, price_cached, price_out, currency)


def _charge(tz: str, *row: Any) -> Charge:
    of, price, counts = row[:11], row[11:15], row[15:]
    labels = dict(zip((each.name for each in fields(Charge)), of, strict=False))
    return Charge(**labels, price=_price(*price), counts=UsageCounts(*counts), tz=tz)


def _priced(workflow: str, model: str, kind: str, *rest: Any) -> explain.Usage:
    requests, repeats, prompt, cached, output = rest[4:]
    price = _price(*rest[:4]) or NO_PRICE
    cost = money.cost(prompt, cached, output, price)
    return explain.Usage(Group(workflow, model, kind), price, requests, repeats, prompt, cached, output, cost)
