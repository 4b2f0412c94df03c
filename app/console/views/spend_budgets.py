"""Budgets: how much of each is spent, reserved and available, and whether it lasts. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.budgets.rules import Budget, Queued, Synchronous, Unit
from app.console.views import signs, text, times
from app.console.views.plots import Bar, Meter
from app.console.views.signs import Sign
from app.metering.windows import Period

_ALMOST = 0.9  # used: the bar has the colour of what somebody should look at
_EARLY = timedelta(hours=1)  # of a window, in which its pace says nothing
PATH = "/console/spend/budgets"


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """A row of the table. `sign` None: nothing to look at."""

    name: str
    href: str
    scope: str
    meter: Meter
    used: str
    most: str
    pace: str
    sign: Sign | None
    spent: str
    renewed: str
    renewed_at: datetime | None


def ordered(budgets: Sequence[Budget]) -> list[Budget]:
    """Those that are used up first."""
    return sorted(budgets, key=lambda each: (-(each.spent + each.begun) / each.max, each.name))


def sentence(budgets: Sequence[Budget]) -> str:
    """What is remarkable about budgets: those that are spent."""
    spent = [each.name for each in ordered(budgets) if each.available <= 0]
    if not spent:
        return ""
    if len(spent) == 1:
        return f"Budget {spent[0]} is spent: what it pays for waits or is refused."
    return f"{len(spent)} budgets are spent: what they pay for waits or is refused."


def row(budget: Budget, now: datetime, account: str = "") -> BudgetRow:
    """One budget. `account`: its name, for who sees those of several."""
    loud = budget.spent >= _ALMOST * budget.max
    used = ", ".join(f"{amount.removesuffix(' tokens')} {name}" for name, amount in numbers(budget))
    pace, sign = _pace(budget, now)
    of = f"{budget.scope} {budget.scope_value}" if budget.scope_value else "" if account else "account"
    return BudgetRow(
        budget.name,
        f"{PATH}/{budget.budget_id}",
        ", ".join(filter(None, (account, of, window(budget)))),
        _meter(budget, used, loud=loud),
        used,
        _shown(budget, budget.max),
        pace,
        sign,
        _when_spent(budget),
        "never" if budget.window_to is None else times.clock_time(budget.window_to, now),
        budget.window_to,
    )


def numbers(budget: Budget) -> list[tuple[str, str]]:
    """What is spent, reserved and available, with these names."""
    amounts = {"spent": budget.spent, "reserved": budget.begun, "available": max(0, budget.available)}
    return [(name, _shown(budget, amount)) for name, amount in amounts.items()]


def window(budget: Budget) -> str:
    """How often it is renewed: a month, an hour, for good."""
    if budget.period == Period.TOTAL:
        return "for good"
    return f"{'an' if budget.period == Period.HOUR else 'a'} {budget.period}"


def _meter(budget: Budget, words: str, *, loud: bool) -> Meter:
    used = min(100.0, 100 * budget.spent / budget.max)
    reserved = min(100.0 - used, 100 * budget.begun / budget.max)
    parts = [Bar("warn" if loud else "up", 0.0, round(used, 2)), Bar("hold", round(used, 2), round(reserved, 2))]
    return Meter(words, [part for part in parts if part.width])


def _pace(budget: Budget, now: datetime) -> tuple[str, Sign | None]:
    """Whether the budget lasts until its window ends, if it goes on so."""
    if budget.available <= 0:
        return "spent", signs.LOOK
    if budget.window_from is None or budget.window_to is None:
        return f"{_shown(budget, budget.available)} left", None
    gone, whole = now - budget.window_from, budget.window_to - budget.window_from
    if gone < min(_EARLY, whole / 10) or not budget.spent:
        return "not known yet" if budget.spent else "nothing used yet", None
    ends = budget.window_from + gone * (budget.max / budget.spent)
    if ends < budget.window_to:
        return f"spent {times.clock_time(ends, now)}", signs.LOOK
    return f"{_shown(budget, int(budget.spent * (whole / gone)))}, within", None


def _when_spent(budget: Budget) -> str:
    words = {Queued.WAIT: "batches wait", Queued.REFUSE: "refused at submit"}.get(budget.queued, "batches go on")
    if budget.synchronous == Synchronous.ALERT:
        words += ", calls too" if budget.queued == Queued.ALERT else ", calls go on"
    return words


def _shown(budget: Budget, amount: int) -> str:
    return budget.shown(amount) if budget.unit == Unit.COST else f"{text.compact(amount)} tokens"
