"""Charges as CSV, for spreadsheets and FinOps tools. Pure.

focus: FOCUS 1.2, a row for each kind of token (see `app.metering.focus`); csv: a row for each line of the ledger and day.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from app.metering import focus, money
from app.metering.reports import Charge
from app.usage_counts import COUNTS

FORMS = ("focus", "csv")
_LABELS = ("account", "key", "workflow", "task", "critical", "variant", "family", "model", "kind", "endpoint")
_COLUMNS = {"focus": focus.COLUMNS, "csv": ("day", *_LABELS, *COUNTS, "cost", "currency")}
_FORMULAS = (*"=+-@\t\r\n", *"＝＋－＠")  # with which a cell begins that a spreadsheet would compute
_EMPTY = "-"  # a label that nobody gave


def text(charges: Iterable[Charge], form: str) -> str:
    """The whole, with its head. `form`: one of FORMS."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS[form], lineterminator="\n")
    writer.writeheader()
    for charge in charges:
        rows = focus.rows(charge) if form == "focus" else _row(charge)
        writer.writerows({name: _inert(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _row(charge: Charge) -> Iterator[dict[str, Any]]:
    used, price = charge.counts, charge.price
    labels = {name: getattr(charge, {"account": "account_id", "key": "key_id"}.get(name, name)) for name in _LABELS}
    cost = None if price is None else Decimal(money.cost(used.prompt, used.cached, used.output, price)).scaleb(-9)
    yield {
        "day": f"{charge.day:%Y-%m-%d}",
        **labels,
        **asdict(used),
        "cost": None if cost is None else f"{cost:f}",
        "currency": price and price.currency,
    }


def _inert(value: Any) -> Any:
    """A label is the caller's; one that a spreadsheet would take for a formula begins with an apostrophe."""
    foreign = isinstance(value, str) and value != _EMPTY and value.startswith(_FORMULAS)
    return f"'{value}" if foreign else value
