"""`slackwater spend export`: what each line used on each day, as CSV."""

import csv
from collections.abc import Iterator
from dataclasses import asdict
from decimal import Decimal
from typing import Annotated, Any

import typer

from app.cli.options import console
from app.cli.spend_options import Account, Since, read
from app.metering import focus, money, reports
from app.metering.reports import Charge
from app.usage_counts import COUNTS
from app.user_errors import Failure

_FORMATS = ("focus", "csv")
_LABELS = ("account", "key", "workflow", "task", "critical", "variant", "family", "model", "kind", "endpoint")


def export(
    form: Annotated[
        str, typer.Option("--format", help="focus: FOCUS 1.2, a row for each kind of token; csv: a row for each line")
    ] = "focus",
    since: Since = "last-month",
    account: Account = None,
) -> None:
    """Export the usage and cost of each day as CSV, to stdout."""
    if form not in _FORMATS:
        raise Failure(f"--format {form[:40]}: unknown.", f"Choose one of {', '.join(_FORMATS)}.")
    charges = read(since, account, reports.charges)
    columns = focus.COLUMNS if form == "focus" else ("day", *_LABELS, *COUNTS, "cost", "currency")
    writer = csv.DictWriter(console.file, columns, lineterminator="\n")
    writer.writeheader()
    for charge in charges:
        writer.writerows(focus.rows(charge) if form == "focus" else _row(charge))


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
