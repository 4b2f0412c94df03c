"""A budget that somebody wants to make or change: what the form shows, and what its fields mean. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.budgets.rules import Budget, Owner, Queued, Reserve, Scope, Synchronous, Unit
from app.budgets.terms import digits
from app.console.views import spend_budgets, text, times
from app.console.views.batch_actions import Action
from app.console.views.figures import Figure, figure
from app.engines.catalogue import Catalogue
from app.errors import SlackwaterError
from app.metering.windows import Period
from app.sentences import ended

NEW = f"{spend_budgets.PATH}/new"
_TOKENS = Unit.TOKENS.value
_PERIODS = {
    Period.HOUR: "an hour",
    Period.DAY: "a day",
    Period.WEEK: "a week, from Monday",
    Period.MONTH: "a month",
    Period.TOTAL: "for good: it is never renewed",
}
_QUEUED = {
    Queued.WAIT: "waits for the next window",
    Queued.REFUSE: "new batches are refused (429)",
    Queued.ALERT: "goes on; an event says so",
}
_CALLS = {Synchronous.REFUSE: "are refused (429)", Synchronous.ALERT: "go on"}
_RESERVES = {Reserve.EXPECTED: "what it is expected to use", Reserve.MAXIMUM: "the most that it can use"}
_FIRST = {
    **dict.fromkeys(("account", "name", "key", "workflow", "most"), ""),
    "period": Period.MONTH,
    "tz": "UTC",
    "alerts_at": "75, 90",
    "queued": Queued.WAIT,
    "synchronous": Synchronous.REFUSE,
    "reserve": Reserve.EXPECTED,
}
_FIELDS = {name: name for name in _FIRST} | {  # of the form, by those of the terms
    **dict.fromkeys(("max_cost", "max_tokens"), "most"),
    "on_limit.queued": "queued",
    "on_limit.synchronous": "synchronous",
}


@dataclass(frozen=True, slots=True)
class Known:
    """What the form offers: live keys with their names, and workflows that were used lately."""

    keys: Sequence[tuple[str, str]] = ()
    workflows: Sequence[str] = ()


def terms(form: Mapping[str, str]) -> dict[str, Any]:
    """The fields of the form as terms, which `app.budgets.terms` checks."""
    most, unit = form.get("most", ""), form.get("unit", "")
    cost = f"{most.removesuffix(unit).strip()} {unit}".strip() if most else ""
    counted: dict[str, Any] = {"max_tokens": _whole(most)} if unit == _TOKENS else {"max_cost": cost}
    given = {name: form[name] for name in ("key", "workflow", "period", "tz", "reserve") if form.get(name)}
    limit = {name: form[name] for name in ("queued", "synchronous") if form.get(name)}
    alerts = [_whole(each) for each in form.get("alerts_at", "").replace(",", " ").replace("%", " ").split()]
    return counted | given | {"alerts_at": alerts, "on_limit": limit}


def _whole(given: str) -> int | str:
    """The number, or what was written in place of one."""
    return int(given) if given.isascii() and given.isdecimal() and len(given) < 20 else given


def given(budget: Budget) -> dict[str, str]:
    """A stored budget as the fields of the form."""
    return {
        "name": budget.name,
        "key": budget.scope_value if budget.scope == Scope.KEY else "",
        "workflow": budget.scope_value if budget.scope == Scope.WORKFLOW else "",
        "most": digits(budget),
        "unit": budget.currency or _TOKENS,
        "period": budget.period,
        "tz": budget.tz,
        "alerts_at": ", ".join(map(str, budget.alerts_at)),
        "queued": budget.queued,
        "synchronous": budget.synchronous,
        "reserve": budget.reserve,
    }


def _units(models: Catalogue, chosen: str) -> list[str]:
    """The currencies of the models, the most frequent first, and tokens."""
    found = Counter(model.price.currency for model in models.models.values() if model.price)
    return list(dict.fromkeys([*(name for name, _ in found.most_common()), _TOKENS, *filter(None, [chosen])]))


def _form(form: Mapping[str, str], error: SlackwaterError | None, models: Catalogue, known: Known) -> dict[str, Any]:
    units = _units(models, form.get("unit", ""))
    wrong = _FIELDS.get(error.param or "", "") if error else ""
    words = ended(error.message) if error else ""
    return {
        "given": {**_FIRST, "unit": units[0], **form},
        "wrong": wrong,
        "problem": text.sentence(words.removeprefix(f"{error.param}: ")) if error and wrong else words,
        "units": [(unit, unit) for unit in units],
        "periods": list(_PERIODS.items()),
        "of_queued": list(_QUEUED.items()),
        "of_calls": list(_CALLS.items()),
        "reserves": list(_RESERVES.items()),
        "keys": known.keys,
        "workflows": [(name, name) for name in known.workflows],
    }


def new(
    form: Mapping[str, str], error: SlackwaterError | None, account: str | None, models: Catalogue, known: Known
) -> dict[str, Any]:
    """What the template of the form needs. `form`: what was filled in; empty at first. `account` None: it is asked for."""
    return _form(form, error, models, known) | {
        "title": f"New budget of {account}" if account else "New budget",
        "crumb": "New budget",
        "lede": "It counts what is used from the begin of the present window on, and says what happens at its limit.",
        "path": NEW,
        "account_is_asked": not account,
        "owner": "",
        "takes_over": False,
        "facts": (),
        "figures": (),
        "delete": None,
        "cli": f"slackwater budget set NAME --max-cost '100 USD' --period month --account {account or 'ACCOUNT'}",
    }


def change(
    form: Mapping[str, str],
    error: SlackwaterError | None,
    budget: Budget,
    by: Owner,
    account: str,
    models: Catalogue,
    known: Known,
    now: datetime,
) -> dict[str, Any]:
    """What the template of the form for a stored budget needs. `form`: what was filled in; empty: as it is stored. `by`: whose
    the budget is from then on.
    """
    path, stored = f"{spend_budgets.PATH}/{budget.budget_id}", given(budget)
    return _form(form or stored, error, models, known) | {
        "title": f"Budget {budget.name} of {account}",
        "crumb": budget.name,
        "lede": "What it has spent stays, unless it then counts something else, by its key, workflow, unit, window or time zone: "
        "then it begins with what the ledger has in its window.",
        "path": path,
        "account_is_asked": False,
        "name": budget.name,
        "owner": spend_budgets.owner(budget),
        "takes_over": budget.owner != by,
        "facts": (),
        "figures": figures(budget, now),
        "delete": _delete(budget, account, path),
        "cli": _cli(stored, account),
    }


def terms_only(budget: Budget, error: SlackwaterError | None, account: str, now: datetime) -> dict[str, Any]:
    """What the template needs for who may not change the budget."""
    return {
        "title": f"Budget {budget.name} of {account}",
        "crumb": budget.name,
        "lede": "The operator of this installation has set it, so only operators can change or delete it.",
        "wrong": "",
        "problem": ended(error.message) if error else "",
        "facts": _facts(budget),
        "figures": figures(budget, now),
        "delete": None,
        "cli": f"slackwater budget list --account {account}",
    }


def _facts(budget: Budget) -> list[tuple[str, str]]:
    of = f"{budget.scope} {budget.scope_value}" if budget.scope_value else "the whole account"
    return [
        ("Set by", spend_budgets.owner(budget)),
        ("Counts", of),
        ("Maximum", f"{budget.shown(budget.max)}, {spend_budgets.window(budget)}"),
        ("Time zone", budget.tz),
        ("Alerts at", ", ".join(f"{at} %" for at in budget.alerts_at) or "none"),
        ("Queued work at the limit", _QUEUED[budget.queued]),
        ("Calls at the limit", _CALLS[budget.synchronous]),
        ("Reserved before work runs", _RESERVES[budget.reserve]),
    ]


def _cli(stored: Mapping[str, str], account: str) -> str:
    """The command that makes a budget with these terms."""
    most = f"--max-tokens {stored['most']}"
    if stored["unit"] != _TOKENS:
        most = f"--max-cost '{stored['most']} {stored['unit']}'"
    names = ("key", "workflow", "period", "tz", "queued", "synchronous", "reserve")
    options = [f"--{name} {stored[name]}" for name in names if stored[name] not in ("", _FIRST[name])]
    alerts = [f"--alerts-at {at}" for at in stored["alerts_at"].replace(",", " ").split()]
    return " ".join([f"slackwater budget set {stored['name']}", most, *options, *alerts, f"--account {account}"])


def figures(budget: Budget, now: datetime) -> list[Figure]:
    """Its three numbers."""
    renewed = f"until {times.clock_time(budget.window_to, now)}" if budget.window_to else "for good"
    words = {
        "spent": f"of {budget.shown(budget.max)}, {spend_budgets.window(budget)}",
        "reserved": "for running work and calls to come",
        "available": renewed,
    }
    return [figure(text.sentence(name), amount, "", words[name]) for name, amount in spend_budgets.numbers(budget)]


def _delete(budget: Budget, account: str, path: str) -> Action:
    words = (
        "Nothing is limited by it any more, and what waits for its money goes on at once. What was spent stays in the ledger. "
        "This cannot be taken back."
    )
    return Action("delete", "Delete", f"{path}/delete", f"Delete the budget {budget.name}?", words, confirm="Delete it",
                  cli=f"slackwater budget rm {budget.name} --account {account}", danger=True)  # fmt: skip
