"""`slackwater spend export`: what each line used on each day, as CSV."""

from typing import Annotated

import typer

from app.cli.options import console
from app.cli.spend_options import Account, Since, read
from app.metering import charges_csv, reports
from app.user_errors import Failure


def export(
    form: Annotated[
        str, typer.Option("--format", help="focus: FOCUS 1.2, a row for each kind of token; csv: a row for each line")
    ] = "focus",
    since: Since = "last-month",
    account: Account = None,
) -> None:
    """Export the usage and cost of each day as CSV, to stdout."""
    if form not in charges_csv.FORMS:
        raise Failure(f"--format {form[:40]}: unknown.", f"Choose one of {', '.join(charges_csv.FORMS)}.")
    console.file.write(charges_csv.text(read(since, account, reports.charges), form))
