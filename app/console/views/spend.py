"""Spend: usage by day to words, figures and rows. Pure.

A number is in money where the models have prices, in the currency that most was spent in; else in tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from app.access.roles import Viewer
from app.budgets.rules import Budget, Owner
from app.console.views import plots, spend_budgets, spend_change, spend_days, text
from app.console.views.figures import Figure, figure
from app.errors import BadInput
from app.metering import harvest
from app.metering.explain import Usage
from app.metering.explained import Explanation
from app.metering.harvest import Harvest
from app.metering.reports import UsageRow
from app.usage_counts import UsageCounts

DAYS = 28
WEEK = 7
GROUPINGS = ("account", "workflow", "model", "key")
_REMARKABLE = 0.2  # of the same day a week before; a smaller change is no headline
_MOST_ROWS = 20
_NAMES = {"": "unknown", "-": "none given"}


def grouping(written: str, *, one_account: bool) -> str:
    """By what the page groups. Raises BadInput."""
    known = GROUPINGS[1:] if one_account else GROUPINGS
    if written and written not in known:
        raise BadInput(f"by: must be one of {', '.join(known)}, got {written[:20]!r}")
    return written or known[0]


def days_until(last: date) -> list[date]:
    """The days of the page, the oldest first."""
    return [last - timedelta(days=back) for back in reversed(range(DAYS))]


@dataclass(frozen=True, slots=True)
class Line:
    """One group: its amount on each day, and its counts of the last week."""

    name: str
    amounts: list[float]
    week: UsageCounts

    @property
    def total(self) -> float:
        """Of all days."""
        return sum(self.amounts)

    @property
    def recent(self) -> float:
        """Of the last week, today included."""
        return sum(self.amounts[-WEEK:])

    def weeks(self) -> tuple[float, float]:
        """Of the last seven whole days, and of the seven before."""
        return sum(self.amounts[-WEEK - 1 : -1]), sum(self.amounts[-2 * WEEK - 1 : -WEEK - 1])


@dataclass(frozen=True, slots=True)
class Table:
    """Groups by day, the largest first. `currency` None: the amounts are tokens. `others`: currencies that are left out."""

    days: list[date]
    lines: list[Line]
    currency: str | None
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: Sequence[UsageRow], days: list[date]) -> "Table":
        """From usage by day and group."""
        spent: dict[str, float] = {}
        for row in rows:
            if row.currency and row.cost:
                spent[row.currency] = spent.get(row.currency, 0.0) + float(row.cost)
        currency = max(spent, key=lambda name: spent[name]) if spent else None
        place = {day.isoformat(): index for index, day in enumerate(days)}
        lines: dict[str, Line] = {}
        for row in rows:
            if row.group[0] not in place:
                continue
            line = lines.setdefault(row.group[1], Line(row.group[1], [0.0] * len(days), UsageCounts()))
            if currency is None:
                line.amounts[place[row.group[0]]] += row.counts.tokens
            elif row.currency == currency:
                line.amounts[place[row.group[0]]] += float(row.cost or 0)
            if place[row.group[0]] >= len(days) - WEEK:
                week = line.week
                week += row.counts
        ordered = sorted(lines.values(), key=lambda line: (-line.recent, -line.total, line.name))
        return cls(days, ordered, currency, tuple(sorted(set(spent) - {currency})))

    def by_day(self) -> list[float]:
        """The amount of each day."""
        return [sum(line.amounts[index] for line in self.lines) for index in range(len(self.days))]

    def weeks(self) -> tuple[float, float]:
        """Of the last seven whole days, and of the seven before."""
        weeks = [line.weeks() for line in self.lines]
        return sum(week for week, _ in weeks), sum(before for _, before in weeks)

    def remarkable_day(self, now: datetime) -> date | None:
        """The whole day of the last week that exceeds the same day a week before by most; None: nothing was used then."""
        sums = self.by_day()
        whole = [index for index, day in enumerate(self.days) if day < now.date() and index >= len(self.days) - WEEK]
        rises = {index: sums[index] - sums[index - WEEK] for index in whole if sums[index] and sums[index - WEEK]}
        return self.days[max(rises, key=lambda index: rises[index])] if rises else None

    def shown(self, amount: float) -> str:
        """An amount for a person."""
        return text.money(amount, self.currency) if self.currency else f"{text.compact(amount)} tokens"

    def scale(self, amounts: Sequence[float]) -> list[str]:
        """The amounts beside a scale."""
        return text.money_scale(amounts, self.currency) if self.currency else [text.compact(each) for each in amounts]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read. `priced`: the last week's usage with its prices; `day` None: none is remarkable. `accounts`: the
    names of those whose budgets are shown; empty: it is one. `tz`: the time zone of the days.
    """

    by: str
    table: Table
    harvested: Sequence[Harvest]
    priced: Sequence[Usage]
    budgets: Sequence[Budget]
    day: date | None
    change: Sequence[Explanation]
    explained_by: str = "workflow"
    accounts: Mapping[int, str] = field(default_factory=dict)
    tz: str = "UTC"


def view(seen: Seen, viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the template of the page needs."""
    table, one_account = seen.table, viewer.tenant_id is not None
    shown = [each for each in seen.change if each.currency == table.currency] or list(seen.change)
    change = spend_change.of(shown[0], seen.explained_by, seen.day) if shown and seen.day else None
    title, rest = headline(seen, change)
    by = Owner.ACCOUNT if one_account else Owner.OPERATOR
    known = GROUPINGS[1:] if one_account else GROUPINGS
    return {
        "title": title,
        "rest": rest if one_account or not table.lines else f"All accounts together. {rest}".strip(),
        "figures": figures(seen),
        "groupings": [{"name": text.sentence(name), "href": f"?by={name}", "here": name == seen.by} for name in known],
        "by": seen.by,
        "plot": spend_days.plot(table, seen.day, change.about if change else None, named),
        "change": change,
        "beside": _beside(seen),
        "unexplained": unexplained(seen),
        "budgets": [
            spend_budgets.row(each, now, by, seen.accounts.get(each.tenant_id, ""))
            for each in spend_budgets.ordered(seen.budgets)
        ],
        "rows": [_row(line, table) for line in table.lines[:_MOST_ROWS] if line.week.requests],
        "words": _top(len(table.lines), "most expensive" if table.currency else "most tokens"),
        "others": ", ".join(table.others),
        "empty": not table.lines,
        "tz": seen.tz,
        "first_day": table.days[0].isoformat(),
        "last_day": table.days[-1].isoformat(),
        "day": seen.day.isoformat() if seen.day else "",
        "cli_line": f"slackwater spend --by {seen.by} --since 7d",
    }


def unexplained(seen: Seen) -> str:
    """Why no change is explained."""
    if seen.day is None:
        return "No whole day of the last week can be compared with the same day a week before. Choose a day:"
    on = f"{seen.day.day} {seen.day:%B}"
    if (
        seen.table.currency is None
        and seen.day in seen.table.days
        and seen.table.by_day()[seen.table.days.index(seen.day)]
    ):
        return f"No model that was used on {on} has a price, so there is no cost to explain. Choose another day:"
    return f"Nothing was used on {on}, nor a week before. Choose another day:"


def _top(lines: int, most: str) -> str:
    return f"{_MOST_ROWS} of {lines:,}, {most} first" if lines > _MOST_ROWS else f"{lines}, {most} first"


def _beside(seen: Seen) -> list[tuple[str, str]]:
    """The links to the days before and after the one that is explained."""
    if seen.day is None:
        return []
    days = [("Day before", seen.day - timedelta(days=1)), ("Day after", seen.day + timedelta(days=1))]
    return [(name, f"?by={seen.by}&day={day}") for name, day in days if day in seen.table.days]


def named(name: str) -> str:
    """A group as a page names it."""
    return _NAMES.get(name, name)


def headline(seen: Seen, change: "spend_change.Change | None") -> tuple[str, str]:
    """What the reader wants to know first: a day that cost more and why; else the week."""
    table = seen.table
    if not table.lines:
        return "Nothing was used in four weeks", "Usage appears here within seconds after an answer."
    week, before = table.weeks()
    spent = "money" if table.currency else "tokens"
    rest = spend_budgets.sentence(seen.budgets, seen.accounts)
    if change and before and change.before and change.after / change.before - 1 >= _REMARKABLE:
        return (
            f"{change.day:%A} cost {_percent(change.after / change.before - 1)} more",
            f"{change.first} {rest}".strip(),
        )
    if not before:
        return (
            f"{table.shown(sum(line.recent for line in table.lines))} in seven days",
            f"There is nothing to compare it with yet. {rest}".strip(),
        )
    share = week / before - 1
    words = "as much as" if abs(share) < 0.02 else f"{_percent(abs(share))} {'more' if share > 0 else 'less'} than"
    return f"The last seven days used {words} the seven before", f"No day stands out by its {spent}. {rest}".strip()


def figures(seen: Seen) -> list[Figure]:
    """At most five numbers."""
    table, counts = seen.table, UsageCounts()
    for line in table.lines:
        counts += line.week
    week = sum(line.recent for line in table.lines)
    value, unit = (table.shown(week), "") if table.currency else text.si(week)
    found = [
        figure(
            "Last 7 days",
            value,
            "" if table.currency else f"{unit} tokens".strip(),
            _weekly(*table.weeks()),
            spark=plots.spark(table.by_day()),
        ),
        *_harvested(seen.harvested),
        *_cached(seen.priced, table),
    ]
    if not counts.requests:
        return [*found, figure("Requests", "0", "", "in the last 7 days")]
    again = (counts.repeats + counts.retried) / counts.requests
    retried = f"{text.count(counts.retried)} took another attempt, {text.count(counts.retried_ok)} of them succeeded"
    return [
        *found,
        figure("Requests", *text.si(counts.requests), f"{text.percent(counts.ok / counts.requests)} % answered"),
        figure("Retried", f"{text.percent(again)} %", "", retried if again else "none took another attempt"),
    ]


def _weekly(week: float, before: float) -> str:
    return f"{_change(week, before)} in whole weeks" if week or before else "there is no whole day before today"


def _change(week: float, before: float) -> str:
    """From one week to the next: +21 %, or that there is nothing before it."""
    if not before:
        return "new" if week else "–"
    return f"{week / before - 1:+.0%}".replace("%", f"{text.NBSP}%").replace("-", "−")


def _harvested(rows: Sequence[Harvest]) -> list[Figure]:
    """Left out where no queued work has ended."""
    tokens = sum(row.counts.tokens for row in rows)
    value, unit = text.si(tokens)
    costs = " and ".join(text.money(float(row.cost), row.currency) for row in rows if row.cost)
    listed = " and ".join(text.money(float(row.list_cost), row.currency) for row in rows if row.list_cost)
    words = ", ".join(filter(None, (harvest.engine_hours(rows), costs)))
    words += f"; as calls {listed}" if listed != costs else ""
    return [figure("Harvested, 7 days", value, f"{unit} tokens".strip(), words)] if tokens else []


def _cached(priced: Sequence[Usage], table: Table) -> list[Figure]:
    """What the cache has saved; its tokens where they cost as much as others. Left out where none came from it."""
    prompt, cached = sum(usage.prompt for usage in priced), sum(usage.cached for usage in priced)
    if not cached:
        return []
    of = [usage for usage in priced if usage.price.currency == table.currency]
    saved = sum(usage.cached * (usage.price.input - usage.price.cached) for usage in of) / 1e12
    share = f"{text.percent(cached / prompt)} % of prompt tokens"
    if not saved:
        value, unit = text.si(cached)
        return [figure("From the cache", value, f"{unit} tokens".strip(), share)]
    return [figure("Saved by the cache", text.money(saved, table.currency), "", f"{share} came from it")]


def _row(line: Line, table: Table) -> dict[str, Any]:
    week, before = line.weeks()
    used = line.week
    return {
        "name": named(line.name),
        "cost": table.shown(line.recent) if line.total or not table.currency else "–",
        "change": _change(week, before),
        "loud": bool(before) and week > 1.5 * before,
        "spark": plots.spark(line.amounts),
        "requests": text.compact(used.requests),
        "tokens": text.compact(used.tokens),
        "cached": f"{text.percent(used.cached / used.prompt)}{text.NBSP}%" if used.prompt else "–",
        "each": text.count(used.output / used.ok if used.ok else None),
        "thousand": text.money(1000 * line.recent / used.requests, table.currency)
        if table.currency and used.requests and line.total
        else "–",
    }


def _percent(share: float) -> str:
    return f"{share * 100:,.0f}{text.NBSP}%"
