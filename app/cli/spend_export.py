"""`slackwater spend export`: what each line used on each day, as CSV."""

from typing import Annotated

import typer

from app.cli.options import console, settings
from app.cli.spend_options import Account, Since, Tz, read
from app.db.pool import Connection
from app.engines import catalogue
from app.engines.model_registry import with_adopted
from app.metering import charges_csv, reports
from app.metering.reports import Scope
from app.user_errors import Failure


def export(
    form: Annotated[
        str, typer.Option("--format", help="focus: FOCUS 1.2, a row for each kind of token; csv: a row for each line")
    ] = "focus",
    since: Since = "last-month",
    tz: Tz = "UTC",
    account: Account = None,
) -> None:
    """Export the usage and cost of each day as CSV, to stdout."""
    if form not in charges_csv.FORMS:
        raise Failure(f"--format {form[:40]}: unknown.", f"Choose one of {', '.join(charges_csv.FORMS)}.")
    file = catalogue.load(settings().models_file)

    async def charges(conn: Connection, scope: Scope) -> str:
        return charges_csv.text(await reports.charges(conn, scope), form, await with_adopted(conn, file))

    console.file.write(read(since, account, charges, tz))
