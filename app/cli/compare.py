"""`slackwater compare A B`: two variants of a workflow side by side. Works on the database."""

from typing import Annotated

import typer

from app.cli import tables
from app.cli.options import Json, console
from app.cli.spend_options import Account, Since, read
from app.db.pool import Connection
from app.metering import documents, variants
from app.metering.compare import MEASURES, Interval, Measure, Observed
from app.metering.reports import Scope
from app.quantities import duration

_NAMES = {
    "ttft_p50": "first token, p50",
    "ttft_p95": "first token, p95",
    "duration_p50": "whole answer, p50",
    "failures": "not answered",
    "cost_per_answer": "cost of an answer",
    "cached_share": "cached share",
    "retried": "requests tried again",
    "retries_answered": "of these, answered",
    "tokens_per_turn": "growth of sessions",
}


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="label `variant` of the requests")],
    second: Annotated[str, typer.Argument(metavar="B", help="the variant that is compared with it")],
    workflow: Annotated[str | None, typer.Option(help="only this workflow")] = None,
    since: Since = "7d",
    account: Account = None,
    as_json: Json = False,
) -> None:
    """Compare two variants: latency, failures, cost, cached share, retries, growth of sessions, with 95 % intervals."""

    async def look(conn: Connection, scope: Scope) -> dict[str, Observed]:
        return await variants.compared(conn, scope, first, second, workflow)

    seen = read(since, account, look)
    if as_json:
        tables.document(console, documents.comparison(seen))
        return
    rows = [_row(measure, seen[first], seen[second]) for measure in MEASURES]
    counts = [f"{each.total('requests'):,} requests" for each in seen.values()]
    shown = [("", *counts, ""), *(row for row in rows if row is not None)]
    tables.show(console, ("", first, second, "differs"), shown, numbers=(first, second))
    tables.sentence(console, "In brackets: 95 % intervals. `yes`: the intervals have nothing in common.", "dim")


def _row(measure: Measure, first: Observed, second: Observed) -> tuple[object, ...] | None:
    """None: nothing was seen of it."""
    found = measure.of(first), measure.of(second)
    if found == (None, None):
        return None
    differs = found[0] is not None and found[1] is not None and found[0].differs(found[1])
    units = (each.currency or "" if measure.unit == "cost" else measure.unit for each in (first, second))
    return (_NAMES[measure.name], *map(_cell, units, found), "yes" if differs else "")


def _cell(unit: str, found: Interval | None) -> str | None:
    if found is None:
        return None
    value = _number(unit, found.value)
    if found.low is None or found.high is None:
        return value
    return f"{value} [{_number(unit, found.low)}, {_number(unit, found.high)}]"


def _number(unit: str, value: float) -> str:
    if unit == "ms":
        return duration(value / 1000)
    if unit == "share":
        return f"{100 * value:.1f} %"
    return f"{value:+,.0f}" if unit == "tokens" else f"{value:.3g} {unit}"
