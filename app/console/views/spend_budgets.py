"""Budgets: how much of each is spent, reserved and available, and whether it lasts. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.budgets.rules import Budget, Owner, Queued, Synchronous, Unit
from app.console.views import signs, text, times
from app.console.views.plots import Bar, Meter
from app.console.views.signs import Sign
from app.metering.windows import Period

_ALMOST = 0.9  # spent: the bar has the colour of what somebody should look at
_EARLY = timedelta(hours=1)  # of a window, in which its pace says nothing
_BATCHES = {Queued.WAIT: "batches wait", Queued.REFUSE: "new batches are refused", Queued.ALERT: "batches go on"}
PATH = "/console/spend/budgets"


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """A row of the table. `opens`: what its link does. `sign` None: nothing to look at."""

    name: str
    href: str
    opens: str
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
    """Those of which most is spent and reserved first."""
    return sorted(budgets, key=lambda each: (-(each.spent + each.begun) / each.max, each.name))


def sentence(budgets: Sequence[Budget], accounts: Mapping[int, str]) -> str:
    """What is remarkable about budgets: those at their limit. `accounts`: names, where those of several are shown."""
    found = [each for each in budgets if each.at_limit]
    if not found:
        return ""
    if len(found) > 1:
        return f"{len(found)} budgets are spent or have too little left."
    [budget] = found
    name = " ".join(filter(None, (budget.name, _whose(budget, accounts.get(budget.tenant_id, "")))))
    if budget.spent < budget.max:
        return f"Budget {name} has too little left for what waits: {_BATCHES[budget.queued]}."
    return f"Budget {name} is spent: {_at_limit(budget)}."


def _whose(budget: Budget, account: str) -> str:
    """Of which part of the spend a budget is: "(of workflow triage, account a)"."""
    scope = f"{budget.scope} {budget.scope_value}" if budget.scope_value else ""
    of = ", ".join(filter(None, (scope, f"account {account}" if account else "")))
    return f"(of {of})" if of else ""


def row(budget: Budget, now: datetime, by: Owner, account: str = "") -> BudgetRow:
    """One budget. `by`: who looks. `account`: its name, for who sees those of several."""
    loud = budget.spent >= _ALMOST * budget.max
    used = ", ".join(f"{amount.removesuffix(' tokens')} {name}" for name, amount in numbers(budget))
    pace, sign = _pace(budget, now)
    of = f"{budget.scope} {budget.scope_value}" if budget.scope_value else "" if account else "account"
    return BudgetRow(
        budget.name,
        f"{PATH}/{budget.budget_id}",
        "Change" if budget.changed_by(by) else "Show",
        ", ".join(filter(None, (account, of, window(budget), f"set by {owner(budget)}"))),
        _meter(budget, used, loud=loud),
        used,
        _shown(budget, budget.max),
        pace,
        sign,
        _at_limit(budget),
        "never" if budget.window_to is None else times.clock_time(budget.window_to, now),
        budget.window_to,
    )


def numbers(budget: Budget) -> list[tuple[str, str]]:
    """What is spent, reserved and available, with these names."""
    amounts = {"spent": budget.spent, "reserved": budget.begun, "available": max(0, budget.available)}
    return [(name, _shown(budget, amount)) for name, amount in amounts.items()]


def owner(budget: Budget) -> str:
    """Whose it is."""
    return f"the {budget.owner}"


def window(budget: Budget) -> str:
    """How often it is renewed: a month, an hour, for good."""
    if budget.period == Period.TOTAL:
        return "for good"
    return f"{'an' if budget.period == Period.HOUR else 'a'} {budget.period}"


def _meter(budget: Budget, words: str, *, loud: bool) -> Meter:
    used = min(100.0, 100 * budget.spent / budget.max)
    reserved = min(100.0 - used, 100 * budget.begun / budget.max)
    parts = [Bar("warn" if loud else "up", 0.0, round(used, 2)), Bar("reserved", round(used, 2), round(reserved, 2))]
    return Meter(words, [part for part in parts if part.width])


def _pace(budget: Budget, now: datetime) -> tuple[str, Sign | None]:
    """Whether the budget lasts until its window ends, if it goes on so."""
    if budget.at_limit:
        return "spent" if budget.spent >= budget.max else "too little left", signs.LOOK
    if budget.window_from is None or budget.window_to is None:
        return f"{_shown(budget, max(0, budget.available))} available", None
    gone, whole = now - budget.window_from, budget.window_to - budget.window_from
    if gone < min(_EARLY, whole / 10) or not budget.spent:
        return "not known yet" if budget.spent else "nothing spent yet", None
    ends = budget.window_from + gone * (budget.max / budget.spent)
    if ends < budget.window_to:
        return f"spent {times.clock_time(ends, now)}", signs.LOOK
    return f"{_shown(budget, int(budget.spent * (whole / gone)))}, within", None


def _at_limit(budget: Budget) -> str:
    words = _BATCHES[budget.queued]
    if budget.synchronous == Synchronous.REFUSE:
        return f"{words}, calls are refused"
    return f"{words}, calls too" if budget.queued == Queued.ALERT else f"{words}, calls go on"


def _shown(budget: Budget, amount: int) -> str:
    return budget.shown(amount) if budget.unit == Unit.COST else f"{text.compact(amount)} tokens"
