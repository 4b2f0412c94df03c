"""`slackwater spend`: who used what, and what it cost. Works on the database."""

from collections.abc import Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import Annotated, Any

import typer

from app.cli import spend_export, spend_reports, tables
from app.cli.database import on_database
from app.cli.options import Json, console, settings
from app.cli.spend_options import Account, Since, Tz, listed, money_text, read
from app.engines import catalogue
from app.metering import harvest, reports
from app.metering.harvest import Harvest
from app.metering.reports import UsageRow
from app.quantities import many

app = typer.Typer(help="Report what requests used and cost; explain a change; compare the ledger with the queue.")
app.command("prices")(spend_reports.prices)
app.command("explain")(spend_reports.explain)
app.command("latency")(spend_reports.latency)
app.command("sessions")(spend_reports.sessions)
app.command("export")(spend_export.export)

_COUNTS = ("requests", "failed", "prompt", "cached", "output", "cost")


@app.callback(invoke_without_command=True)
def spend(
    context: typer.Context,
    by: Annotated[
        str, typer.Option(help=f"what to group by, separated by commas: {', '.join(reports.DIMENSIONS)}")
    ] = ",".join(reports.USUAL),
    since: Since = "24h",
    tz: Tz = "UTC",
    account: Account = None,
    as_json: Json = False,
) -> None:
    """Report requests, tokens and cost of the last day, by workflow and model."""
    if context.invoked_subcommand:
        return
    names = listed(by, reports.DIMENSIONS)
    found = read(since, account, lambda conn, scope: reports.usage(conn, names, scope), tz)
    if as_json:
        tables.document(console, [_document(names, row) for row in found])
        return
    if not found:
        tables.sentence(console, f"No request ended in {_named(since)}.")
        return
    rows = [_cells(row) for row in found]
    tables.show(console, (*names, *_COUNTS), rows, whole=names[:1], wide=("cached", "failed"), numbers=_COUNTS)
    accounts = read(since, account, lambda conn, scope: reports.usage(conn, ("account",), scope), tz)
    _total(found, len({row.group for row in accounts}))
    file = catalogue.load(settings().models_file)
    _harvested(read(since, account, lambda conn, scope: harvest.read(conn, scope, file), tz))


@app.command("check")
def check(as_json: Json = False) -> None:
    """Compare the ledger's usage of queued work with what the queue counted. The exit code is 1 if they differ."""
    found = on_database(settings(), reports.check)
    if as_json:
        rows = [{"account": d.account_id, "count": d.count, "ledger": d.ledger, "queue": d.queue} for d in found]
        tables.document(console, rows)
    elif not found:
        tables.sentence(console, "The ledger has exactly what the queue counted.", "green")
    else:
        cells = [(d.account_id, d.count, f"{d.ledger:,}", f"{d.queue:,}") for d in found]
        tables.show(console, ("account", "count", "ledger", "queue"), cells, numbers=("ledger", "queue"))
    if found:
        raise typer.Exit(1)


def _named(since: str) -> str:
    return f"the last {since}" if since[:1].isdigit() and "-" not in since else since


def _cells(row: UsageRow) -> tuple[object, ...]:
    used = row.counts
    counts = (f"{n:,}" for n in (used.requests, used.failed, used.prompt, used.cached, used.output))
    return (*row.group, *counts, money_text(row.cost, row.currency))


def _total(found: Sequence[UsageRow], accounts: int) -> None:
    currencies = {row.currency for row in found if row.cost is not None}
    costs = [
        money_text(sum((row.cost or Decimal() for row in found if row.currency == name), Decimal()), name)
        for name in sorted(filter(None, currencies))
    ]
    tokens = sum(row.counts.tokens for row in found)
    requests = many(sum(row.counts.requests for row in found), "request")
    requests += f" of {accounts:,} accounts" if accounts > 1 else ""
    tables.sentence(console, " · ".join([requests, f"{tokens:,} tokens", *filter(None, costs)]), "dim")


def _harvested(rows: Sequence[Harvest]) -> None:
    """What was done in the headroom of engines; where calls would have cost something else, what they would have cost."""
    tokens = sum(row.counts.tokens for row in rows)
    costs = " and ".join(filter(None, (money_text(row.cost, row.currency) for row in rows)))
    listed = " and ".join(filter(None, (money_text(row.list_cost, row.currency) for row in rows)))
    parts = [f"{tokens:,} tokens", harvest.engine_hours(rows), costs, f"as calls {listed}" if listed != costs else ""]
    if tokens:
        tables.sentence(console, f"Harvested: {' · '.join(filter(None, parts))}", "dim")


def _document(by: Sequence[str], row: UsageRow) -> dict[str, Any]:
    cost = None if row.cost is None else float(row.cost)
    return {**dict(zip(by, row.group, strict=True)), **asdict(row.counts), "cost": cost, "currency": row.currency}
