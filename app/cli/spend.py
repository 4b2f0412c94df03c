"""`slackwater spend`: who used what, and what it cost. Works on the database."""

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

import typer

from app import clock
from app.cli import tables
from app.cli.database import on_database
from app.cli.options import Json, console, settings
from app.db.pool import Connection
from app.metering import reports
from app.metering.reports import UsageRow
from app.quantities import many, seconds_of
from app.tenants import service as tenants
from app.user_errors import Failure

app = typer.Typer(help="Report what requests used and cost; compare the ledger with the queue.")

_COUNTS = ("requests", "failed", "prompt", "cached", "output", "cost")


@app.callback(invoke_without_command=True)
def spend(
    context: typer.Context,
    by: Annotated[
        str, typer.Option(help=f"what to group by, separated by commas: {', '.join(reports.DIMENSIONS)}")
    ] = ",".join(reports.USUAL),
    since: Annotated[str, typer.Option(help="how far back, like 90m, 24h or 7d")] = "24h",
    account: Annotated[str | None, typer.Option(help="only this account")] = None,
    as_json: Json = False,
) -> None:
    """Report requests, tokens and cost of the last day, by workflow and model."""
    if context.invoked_subcommand:
        return
    names = tuple(name.strip() for name in by.split(",") if name.strip())
    if unknown := [name for name in names if name not in reports.DIMENSIONS]:
        raise Failure(f"--by {unknown[0]}: unknown.", f"Choose from {', '.join(reports.DIMENSIONS)}.")
    seconds = seconds_of(since)
    if seconds is None:
        raise Failure(f"--since {since}: not a length of time.", "Write a number and s, m, h or d, like 24h.")
    found = _read(names, seconds, account)
    if as_json:
        tables.document(console, [_document(names, row) for row in found])
        return
    if not found:
        tables.sentence(console, f"No request ended in the last {since}.")
        return
    tables.show(console, (*names, *_COUNTS), [_cells(row) for row in found], whole=names[:1], wide=("cached", "failed"))
    _total(found)


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
        tables.show(console, ("account", "count", "ledger", "queue"), cells)
    if found:
        raise typer.Exit(1)


def _read(by: Sequence[str], seconds: float, account: str | None) -> list[UsageRow]:
    until = clock.now()

    async def read(conn: Connection) -> list[UsageRow]:
        tenant_id = None if account is None else await tenants.find_tenant(conn, account)
        hour = (until - timedelta(seconds=seconds)).replace(minute=0, second=0, microsecond=0)
        return await reports.usage(conn, by, hour, until, tenant_id)

    return on_database(settings(), read)


def _cells(row: UsageRow) -> tuple[object, ...]:
    failed = row.requests - row.ok
    counts = (f"{n:,}" for n in (row.requests, failed, row.prompt, row.cached, row.output))
    return (*row.group, *counts, _money(row.cost, row.currency))


def _money(cost: Decimal | None, currency: str | None) -> str | None:
    """An amount with as many places as it needs to show three digits; None: there is no price."""
    if cost is None:
        return None
    places = 2 if cost == 0 or cost >= 1 else min(12, 2 - cost.adjusted())
    return f"{cost:,.{places}f} {currency}"


def _total(found: Sequence[UsageRow]) -> None:
    currencies = {row.currency for row in found if row.cost is not None}
    costs = [
        _money(sum((row.cost or Decimal() for row in found if row.currency == name), Decimal()), name)
        for name in sorted(filter(None, currencies))
    ]
    tokens = sum(row.prompt + row.output for row in found)
    requests = many(sum(row.requests for row in found), "request")
    tables.sentence(console, " · ".join([requests, f"{tokens:,} tokens", *filter(None, costs)]), "dim")


def _document(by: Sequence[str], row: UsageRow) -> dict[str, Any]:
    counts = {name: getattr(row, name) for name in ("requests", "ok", "prompt", "cached", "output")}
    again = {name: getattr(row, name) for name in ("repeats", "retried", "retried_ok", "yields")}
    cost = None if row.cost is None else float(row.cost)
    return {**dict(zip(by, row.group, strict=True)), **counts, **again, "cost": cost, "currency": row.currency}
