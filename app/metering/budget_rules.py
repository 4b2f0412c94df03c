"""Budgets and their arithmetic. Pure.

An amount of a budget is in its unit: 10^-9 of its currency, or tokens. It never holds more than is free:

    spent + held <= max

So it overspends only by what requests cost beyond their holds. A hold takes at most LARGEST of a budget, and slices for
synchronous requests at most the rest, so that in a fresh window every hold fits once the holds of the last one have returned.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from math import ceil

from app.metering import money
from app.metering.money import TokenPrice
from app.quantities import moment

UNLIMITED = 2**62
LARGEST = (9, 10)
LEAST_PER_MILLE, MOST_PER_MILLE = 50, 1000
_MARGIN = 1.25
_LEARNED_TOKENS = 10_000  # of which results may have used the most, before their ratio is believed
SPENT = 100  # per cent


class Scope(StrEnum):
    """What a budget limits: an account, one of its keys, or one of its workflows."""

    ACCOUNT = "account"
    KEY = "key"
    WORKFLOW = "workflow"


class Owner(StrEnum):
    """Who has set a budget. The operator may change every budget; an account changes only its own."""

    OPERATOR = "operator"
    ACCOUNT = "account"


class Unit(StrEnum):
    """What a budget counts."""

    COST = "cost"
    TOKENS = "tokens"


class WhenSpent(StrEnum):
    """What happens to a new batch while the budget is spent. Synchronous requests are always refused."""

    WAIT = "wait"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class BudgetTerms:
    """What its owner has set. `soft`: per cent at which an event is written; `divert_at`: from which work is diverted."""

    name: str
    scope: Scope
    scope_value: str
    unit: Unit
    currency: str | None
    period: str
    tz: str
    max: int
    soft: tuple[int, ...] = ()
    divert_at: int | None = None
    fallback: tuple[str, ...] = ()
    when_spent: WhenSpent = WhenSpent.WAIT
    strict: bool = False

    @property
    def counts(self) -> tuple[Unit, str | None]:
        """What its amounts are of: tokens, or cost in a currency."""
        return self.unit, self.currency


@dataclass(frozen=True, slots=True)
class Budget(BudgetTerms):
    """A stored budget in its present window. `notified`: per cent up to which events of soft thresholds were written.

    `spent_noted`: whether it was written that its money has ended. `diverted_to`: the models that work was moved to.
    """

    budget_id: int = 0
    tenant_id: int = 0
    spent: int = 0
    held: int = 0
    window_from: datetime | None = None
    window_to: datetime | None = None
    notified: int = 0
    spent_noted: bool = False
    diverted_to: tuple[str, ...] = ()
    owner: Owner = Owner.ACCOUNT

    @property
    def free(self) -> int:
        """What can be held."""
        return self.max - self.spent - self.held

    @property
    def largest(self) -> int:
        """The largest hold."""
        return largest(self.max)

    @property
    def percent(self) -> int:
        """The spent share of max, in per cent, rounded down."""
        return self.spent * 100 // self.max

    @property
    def diverts(self) -> bool:
        """Whether the share is spent from which waiting work moves to a fallback."""
        return self.divert_at is not None and bool(self.fallback) and self.percent >= self.divert_at

    def shown(self, amount: int) -> str:
        """An amount of this budget, for a person."""
        return money.shown(amount, self.currency or "USD") if self.unit == Unit.COST else f"{amount:,} tokens"


TERMS = tuple(field.name for field in fields(BudgetTerms))
COLUMNS = tuple(field.name for field in fields(Budget))


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts in both units; None in a limit: there is no budget of this unit."""

    cost: int | None
    tokens: int | None

    def fits(self, hold: "Amounts") -> bool:
        """Whether a hold is within this limit."""
        pairs = ((hold.cost, self.cost), (hold.tokens, self.tokens))
        return all(most is None or (amount or 0) <= most for amount, most in pairs)


@dataclass(frozen=True, slots=True)
class Learned:
    """What the results of a lane used, and the most that they could have used, with a mean life of a day."""

    cost: float = 0.0
    worst: float = 0.0
    tokens: float = 0.0
    worst_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class Funding:
    """The budgets that apply to a line, and the price of its tokens. `price` None: its model has none.

    A budget of money applies only to lines with a price in its currency. `long_answer`: tokens that 95 of 100 of its answers
    without a limit do not exceed; None: not known yet.
    """

    line_id: int
    tenant_id: int
    budgets: tuple[Budget, ...]
    price: TokenPrice | None
    long_answer: int | None = None

    @property
    def strict(self) -> bool:
        """Whether a hold is all that a request can cost."""
        return any(budget.strict for budget in self.budgets)


def largest(most: int) -> int:
    """The largest hold of a budget with this maximum."""
    times, of = LARGEST
    return max(1, most * times // of)


def slices_most(most: int) -> int:
    """What the slices of a budget hold together at most."""
    return max(0, most - largest(most))


def per_mille(learned: Learned, *, strict: bool) -> int:
    """The share of the worst that a hold takes: 1.25 times what the lane's results used of it, or all until that is known."""
    if strict or learned.worst_tokens < _LEARNED_TOKENS:
        return MOST_PER_MILLE
    ratio = max(learned.tokens / learned.worst_tokens, learned.cost / learned.worst if learned.worst else 0.0)
    return min(MOST_PER_MILLE, max(LEAST_PER_MILLE, ceil(ratio * _MARGIN * 1000)))


def limits(budgets: list[Budget]) -> tuple[Amounts, Amounts, Amounts]:
    """What is free in all of these budgets, what is unspent in all, and the largest hold that all of them take."""
    return (
        _least(budgets, lambda budget: budget.free),
        _least(budgets, lambda budget: budget.max - budget.spent),
        _least(budgets, lambda budget: budget.largest),
    )


def _least(budgets: list[Budget], amount: Callable[[Budget], int]) -> Amounts:
    by_unit = {unit: min((amount(budget) for budget in budgets if budget.unit == unit), default=None) for unit in Unit}
    return Amounts(by_unit[Unit.COST], by_unit[Unit.TOKENS])


def crossed(budget: Budget) -> list[int]:
    """The thresholds, in per cent, that the spent share has reached and of which no event was written in this window."""
    soft = [at for at in budget.soft if budget.notified < at <= budget.percent]
    return [*soft, SPENT] if budget.percent >= SPENT and not budget.spent_noted else soft


def windows_needed(budgets: list[Budget], cost: int, tokens: int) -> int:
    """How many windows beyond the present one work needs that will use so much. 0: it fits into the present one."""
    needed = 0
    for budget in budgets:
        over = (cost if budget.unit == Unit.COST else tokens) - max(0, budget.free)
        needed = max(needed, -(-over // budget.max) if over > 0 else 0)
    return needed


def spent_message(budget: Budget) -> str:
    """Why a request is refused."""
    until = f"is renewed on {moment(budget.window_to)}" if budget.window_to else "is not renewed; raise it"
    used = budget.shown(budget.spent + budget.held)
    return f"Budget {budget.name!r} is used up: {used} of {budget.shown(budget.max)} spent or held; it {until}"
