"""The terms of a budget as its owner writes them, and a budget as its owner reads it. The API and the command line share this."""

import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any

from app import clock
from app.budgets.rules import Budget, BudgetTerms, Queued, Reserve, Scope, Synchronous, Unit
from app.errors import BadInput
from app.metering import money, windows
from app.metering.lines import DOOR

_OF = ("key", "workflow", "max_cost", "max_tokens", "period", "tz")
_ONE_OF = (("key", "workflow"), ("max_cost", "max_tokens"))  # a budget has at most one of each pair
FIELDS = (*_OF, "alerts_at", "on_limit", "reserve")
_POLICY = (
    'is said by a rule of the policy now, like when = { budget = ">=60", critical = false } and fallback = ["MODEL"]'
)
_REPLACED = {  # what is said of an old field, and of an old option
    "when_spent": (
        'is on_limit now, like {"queued": "wait"} or {"queued": "refuse"}',
        "is --queued now, like --queued wait or --queued refuse",
    ),
    "soft": (
        "is alerts_at now, a list of per cents like [75, 90]",
        "is --alerts-at now, like --alerts-at 75 --alerts-at 90",
    ),
    "divert_at": (_POLICY, _POLICY),
    "fallback": (_POLICY, _POLICY),
    "strict": (
        'is reserve now: "maximum" for true, "expected" for false',
        "is --reserve now: --reserve maximum",
    ),
}
NAME = "^[a-z0-9][a-z0-9._-]{0,63}$"
AMOUNT = r"^[0-9]{1,9}(\.[0-9]{1,9})?( [A-Z]{3})?$"
_NAME, _AMOUNT = re.compile(NAME.strip("^$")), re.compile(AMOUNT.strip("^$"))
_FORM = "must be 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
MOST_LISTED = 10
MOST_TOKENS = 10**15
COUNTED = (
    "name",
    "spent",
    "reserved",
    "available",
    "window_from",
    "window_to",
    "not_counted",
)  # of `view`, what no owner sets


def parse(name: str, given: Mapping[str, Any], *, where: str = "") -> BudgetTerms:
    """The terms of the budget `name`. `where` comes before the name of a field in messages. Raises BadInput."""
    terms = _Reader(given, where)
    check_name(name)
    for field in given:
        if field in _REPLACED:
            raise terms.wrong(field, _REPLACED[field][bool(where)])
        if field not in FIELDS:
            raise terms.wrong(field, f"unknown; a budget has {', '.join(FIELDS)}")
    scope, value = terms.scope()
    unit, currency, most = terms.most()
    return BudgetTerms(
        name,
        scope,
        value,
        unit,
        currency,
        *terms.window(),
        most,
        terms.alerts_at(),
        *terms.on_limit(),
        Reserve(terms.choice("reserve", tuple(Reserve), Reserve.EXPECTED)),
    )


def check_name(name: str) -> None:
    """Raise BadInput unless a budget can have this name."""
    if not _NAME.fullmatch(name):
        raise BadInput(f"name: {_FORM}, not {name[:70]!r}", param="name")


def warning(budget: BudgetTerms, currencies: Collection[str]) -> str:
    """What is remarkable about a budget where prices are in these currencies; empty: nothing."""
    if budget.currency is None or budget.currency in currencies:
        return ""
    others = f"; prices are in {', '.join(sorted(currencies))}" if currencies else ""
    return f"budget {budget.name} counts nothing now, as no model has a price in {budget.currency}{others}"


def kept(budget: Budget, given: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """The terms of a stored budget as its owner writes them, with what is given in their place. `without`: those that go.

    A maximum without a currency is in that of the budget.
    """
    stored = written(budget)
    gone = {*without, *(each for pair in _ONE_OF for each in pair if not given.keys().isdisjoint(pair))}
    terms = {name: value for name, value in stored.items() if name not in gone} | dict(given)
    terms["on_limit"] = stored["on_limit"] | given.get("on_limit", {})
    cost = given.get("max_cost")
    if isinstance(cost, str) and budget.currency and _AMOUNT.fullmatch(cost) and " " not in cost:
        terms["max_cost"] = f"{cost} {budget.currency}"
    return terms


def written(budget: Budget) -> dict[str, Any]:
    """The terms of a stored budget as its owner writes them."""
    scope = {} if budget.scope == Scope.ACCOUNT else {str(budget.scope): budget.scope_value}
    most = {"max_cost": f"{digits(budget)} {budget.currency}"} if budget.currency else {"max_tokens": budget.max}
    limit = {"queued": budget.queued, "synchronous": budget.synchronous}
    window = {"period": budget.period, "tz": budget.tz}
    return {**scope, **most, **window, "alerts_at": budget.alerts_at, "on_limit": limit, "reserve": budget.reserve}


def digits(budget: Budget) -> str:
    """The maximum of a budget as its owner writes it, without its unit."""
    if not budget.currency:
        return str(budget.max)
    return format(Decimal(budget.max).scaleb(-money.AMOUNT_PLACES).normalize(), "f")


class _Reader:
    """Reads fields, and says which one is wrong."""

    def __init__(self, given: Mapping[str, Any], where: str) -> None:
        self._given = given
        self._where = where

    def wrong(self, field: str, problem: str) -> BadInput:
        """The error for a field."""
        return BadInput(f"{self._name(field)}: {problem}", param=field)

    def _name(self, field: str) -> str:
        return self._where + (field.replace("_", "-") if self._where else field)

    def scope(self) -> tuple[Scope, str]:
        """What the budget limits."""
        key, workflow = self._text("key", ""), self._text("workflow", "")
        if {"key", "workflow"} <= self._given.keys():
            raise self.wrong("workflow", "a budget has a key or a workflow, not both; set two budgets")
        if "workflow" in self._given and not _NAME.fullmatch(workflow):
            raise self.wrong("workflow", f"{_FORM}, not {workflow[:70]!r}")
        if "key" in self._given and not key:
            raise self.wrong("key", "must be the id of a key; leave it out for the whole account")
        if key:
            return Scope.KEY, key
        return (Scope.WORKFLOW, workflow) if workflow else (Scope.ACCOUNT, "")

    def most(self) -> tuple[Unit, str | None, int]:
        """Unit, currency and maximum of a window."""
        given = [name for name in ("max_cost", "max_tokens") if name in self._given]
        if len(given) != 1:
            raise self.wrong("max_cost", "give either max_cost, like '100 USD', or max_tokens")
        if given == ["max_tokens"]:
            tokens = self.whole("max_tokens", 1, MOST_TOKENS)
            assert tokens is not None
            return Unit.TOKENS, None, tokens
        cost = self._given["max_cost"]
        if not isinstance(cost, str) or not _AMOUNT.fullmatch(cost):
            raise self.wrong("max_cost", f"must be an amount like '100 USD' or '0.50', not {cost!r:.40}")
        currency = cost.partition(" ")[2] or "USD"
        amount = money.parse_amount(cost, "max_cost", currency)
        if amount < 1:
            raise self.wrong("max_cost", "must be more than 0")
        return Unit.COST, currency, amount

    def window(self) -> tuple[str, str]:
        """Period and time zone."""
        period = self.choice("period", tuple(windows.Period), windows.Period.MONTH)
        name = self._text("tz", "UTC")
        try:
            windows.zone(name)
        except ValueError as error:
            raise self.wrong("tz", str(error)) from None
        return str(period), name

    def on_limit(self) -> tuple[Queued, Synchronous]:
        """What queued work and synchronous requests do at the limit."""
        given = self._given.get("on_limit", {})
        if not isinstance(given, Mapping) or given.keys() - {"queued", "synchronous"}:
            raise self.wrong("on_limit", 'must be like {"queued": "wait", "synchronous": "refuse"}')
        name = "" if self._where else "on_limit."
        queued = self._chosen(f"{name}queued", given.get("queued", Queued.WAIT), tuple(Queued))
        calls = given.get("synchronous", Synchronous.REFUSE)
        return Queued(queued), Synchronous(self._chosen(f"{name}synchronous", calls, tuple(Synchronous)))

    def alerts_at(self) -> tuple[int, ...]:
        """The shares, in ascending order."""
        given = self._given.get("alerts_at", [])
        if not isinstance(given, list | tuple) or len(given) > MOST_LISTED:
            raise self.wrong("alerts_at", f"must be a list of at most {MOST_LISTED} per cents, like [75, 90]")
        if bad := [at for at in given if type(at) is not int or not 1 <= at <= 99]:
            raise self.wrong("alerts_at", f"must be whole numbers from 1 to 99, not {bad[0]!r:.40}")
        return tuple(sorted(set(given)))

    def whole(self, name: str, least: int, most: int) -> int | None:
        """A whole number; None if it is not given."""
        value = self._given.get(name)
        if name in self._given and (type(value) is not int or not least <= value <= most):
            raise self.wrong(name, f"must be a whole number from {least:,} to {most:,}, not {value!r:.40}")
        return value

    def choice(self, name: str, choices: tuple[str, ...], usual: str) -> str:
        """One of some words."""
        return self._chosen(name, self._given.get(name, usual), choices)

    def _chosen(self, name: str, value: object, choices: tuple[str, ...]) -> str:
        if value not in choices:
            raise self.wrong(name, f"must be one of {', '.join(choices)}, not {value!r:.40}")
        return str(value)

    def _text(self, name: str, usual: str) -> str:
        value = self._given.get(name, usual)
        if not isinstance(value, str):
            raise self.wrong(name, f"must be a string, not {value!r:.40}")
        return value


def view(budget: Budget) -> dict[str, Any]:
    """A budget as JSON. Amounts are in its currency, or in tokens. `not_counted`: kinds of requests."""
    return {
        "name": budget.name,
        "owner": budget.owner,
        "scope": budget.scope,
        "key": budget.scope_value if budget.scope == Scope.KEY else None,
        "workflow": budget.scope_value if budget.scope == Scope.WORKFLOW else None,
        "unit": budget.unit,
        "currency": budget.currency,
        "max": amount(budget, budget.max),
        "spent": amount(budget, budget.spent),
        "reserved": amount(budget, budget.begun),
        "available": amount(budget, max(0, budget.available)),
        "period": budget.period,
        "tz": budget.tz,
        "window_from": clock.iso(budget.window_from),
        "window_to": clock.iso(budget.window_to),
        "alerts_at": list(budget.alerts_at),
        "on_limit": {"queued": budget.queued, "synchronous": budget.synchronous},
        "reserve": budget.reserve,
        "not_counted": [DOOR],
    }


def amount(budget: Budget, value: int) -> float | int:
    """An amount of the budget as a number: of its currency, or tokens."""
    return value / money.UNITS if budget.unit == Unit.COST else value
