"""Charges as CSV, for spreadsheets and FinOps tools. Pure.

focus: FOCUS 1.2, a row for each kind of token (see `app.metering.focus`); csv: a row for each line of the ledger and day. Both
have the list cost, which is that of synchronous requests on that day, beside the cost at the line's own price.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from app.engines.catalogue import Catalogue
from app.metering import focus, money
from app.metering.harvest import list_price
from app.metering.lines import UNQUEUED
from app.metering.money import TokenPrice
from app.metering.reports import Charge
from app.usage_counts import COUNTS

FORMS = ("focus", "csv")
_LABELS = ("account", "key", "workflow", "task", "critical", "variant", "family", "model", "kind", "endpoint")
_COLUMNS = {"focus": focus.COLUMNS, "csv": ("day", *_LABELS, *COUNTS, "cost", "list_cost", "currency")}
_FORMULAS = (*"=+-@\t\r\n", *"＝＋－＠")  # with which a cell begins that a spreadsheet would compute
_EMPTY = "-"  # a label that nobody gave


def text(charges: Iterable[Charge], form: str, models: Catalogue) -> str:
    """The whole, with its head. `form`: one of FORMS. `models`: whose rate cards have the list prices."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS[form], lineterminator="\n")
    writer.writeheader()
    for charge in charges:
        listed = _listed(charge, models)
        rows = focus.rows(charge, listed) if form == "focus" else _row(charge, listed)
        writer.writerows({name: _inert(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _listed(charge: Charge, models: Catalogue) -> TokenPrice | None:
    """What synchronous requests cost on the day of the charge; its own price if it is one, or if the card has none any more."""
    if charge.kind in UNQUEUED or charge.price is None:
        return charge.price
    return list_price(models, charge.model, charge.price.currency, charge.day, charge.tz) or charge.price


def _row(charge: Charge, listed: TokenPrice | None) -> Iterator[dict[str, Any]]:
    used, price = charge.counts, charge.price
    labels = {name: getattr(charge, {"account": "account_id", "key": "key_id"}.get(name, name)) for name in _LABELS}
    cost, list_cost = (
        each and f"{Decimal(money.cost(used.prompt, used.cached, used.output, each)).scaleb(-9):f}"
        for each in (price, listed)
    )
    yield {
        "day": f"{charge.day:%Y-%m-%d}",
        **labels,
        **asdict(used),
        "cost": cost,
        "list_cost": list_cost,
        "currency": price and price.currency,
    }


def _inert(value: Any) -> Any:
    """A label is the caller's; one that a spreadsheet would take for a formula begins with an apostrophe."""
    foreign = isinstance(value, str) and value != _EMPTY and value.startswith(_FORMULAS)
    return f"'{value}" if foreign else value
