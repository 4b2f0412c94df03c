"""`slackwater spend prices|explain|latency|sessions`: rate card, why the cost changed, times of answers, growth of sessions."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from app.cli import tables
from app.cli.options import Json, console, settings
from app.cli.spend_options import Account, Since, Tz, listed, period, read
from app.db.pool import Connection
from app.engines import catalogue
from app.metering import documents, explain_text, explained, money, reports, session_report, sketch
from app.metering.explained import Explanation
from app.metering.reports import Scope
from app.metering.session_report import Session, SessionRow
from app.quantities import duration, many
from app.user_errors import Failure

_TERMS = 12  # are shown; the rest is one line
_SHOWN = (0.5, 0.99)  # quantiles; --json has more
_SESSIONS = 5
_PRICES = ("input", "cached_input", "output")


def prices(as_json: Json = False) -> None:
    """Show the rate card: what a million tokens cost, by model and kind of work, and from when on."""
    file = catalogue.load(settings().models_file).models
    found = [row for name in sorted(file) for row in documents.prices(file[name])]
    if as_json:
        tables.document(console, found)
    elif not found:
        tables.sentence(console, "No model has a price.")
    else:
        numbers = ("input", "cached", "output")
        tables.show(console, ("model", "work", "from", *numbers, "currency"), map(_price, found), numbers=numbers)


def _price(row: dict[str, Any]) -> tuple[object, ...]:
    begins = row["from"] and row["from"][:16].replace("T", " ")
    return (
        row["model"],
        row["work"],
        begins,
        *(f"{row[name]:.6f}".rstrip("0").rstrip(".") for name in _PRICES),
        row["currency"],
    )


def explain(
    before: Annotated[str, typer.Argument(help="a period, like last-week, 2026-10 or 2026-11-01..2026-11-07")],
    after: Annotated[str, typer.Argument(help="the period that is compared with it")],
    by: Annotated[str, typer.Option(help=f"one of {', '.join(explained.BY)}")] = "workflow",
    tz: Tz = "UTC",
    account: Account = None,
    as_json: Json = False,
) -> None:
    """Explain why the cost changed from one period to another. The terms add up to the change."""
    if by not in explained.BY:
        raise Failure(f"--by {by[:40]}: unknown.", f"Choose one of {', '.join(explained.BY)}.")
    old, new = period(before, "BEFORE", tz), period(after, "AFTER", tz)

    async def change(conn: Connection, scope: Scope) -> list[Explanation]:
        return await explained.change(conn, by, old, new, scope.tenant_id)

    found = read(before, account, change, tz)
    if as_json:
        tables.document(
            console, [documents.explanation(by, each.currency, each.before, each.after, each.terms) for each in found]
        )
    elif not found:
        tables.sentence(console, "No model with a price was used in either period.")
    for each in () if as_json else found:
        _show(by, each, before, after)


def _show(by: str, found: Explanation, before: str, after: str) -> None:
    currency = found.currency
    amounts = [money.shown(amount, currency) for amount in (found.before, found.after)]
    change = found.after - found.before
    tables.sentence(
        console, f"{before}: {amounts[0]}   {after}: {amounts[1]}   change: {money.change(change, currency)}"
    )
    rows = [
        (money.change(term.amount, currency), explain_text.cause(term, currency, by)) for term in found.terms[:_TERMS]
    ]
    if rest := found.terms[_TERMS:]:
        amount = money.change(sum(term.amount for term in rest), currency)
        rows.append((amount, f"{many(len(rest), 'smaller term')}; --json has all"))
    if rows:
        tables.show(console, ("change", "because"), rows, numbers=("change",))


def latency(
    by: Annotated[str, typer.Option(help=f"separated by commas: {', '.join(reports.DIMENSIONS)}")] = "workflow,model",
    since: Since = "24h",
    tz: Tz = "UTC",
    account: Account = None,
    as_json: Json = False,
) -> None:
    """Report the time to the first token (TTFT) and to the end of answers, which half, or 99 %, did not exceed."""
    names = listed(by, reports.DIMENSIONS)
    found = read(since, account, lambda conn, scope: reports.latencies(conn, names, scope), tz)
    if as_json:
        tables.document(console, [documents.latency(names, row) for row in found])
        return
    if not found:
        tables.sentence(console, "No answer with a known latency in that time.")
        return
    numbers = ("streams", "TTFT p50", "TTFT p99", "answers", "whole p50", "whole p99")
    rows = []
    for row in found:
        rows.append((*row.group, *_times(row.first_token), *_times(row.duration)))
    tables.show(console, (*names, *numbers), rows, whole=names[:1], numbers=numbers)


def _times(counts: Sequence[int]) -> list[str | None]:
    """How many were measured, and how long they took."""
    found = (sketch.quantile(counts, q) for q in _SHOWN)
    return [f"{sum(counts):,}", *(None if ms is None else duration(ms / 1000) for ms in found)]


def sessions(
    by: Annotated[
        str, typer.Option(help=f"separated by commas: {', '.join(session_report.DIMENSIONS)}")
    ] = "workflow,model",
    since: Since = "7d",
    account: Account = None,
    as_json: Json = False,
) -> None:
    """Report how many tokens the prompts of sessions grow by with each request, and which sessions grow fastest."""
    names = listed(by, session_report.DIMENSIONS)
    found = read(since, account, lambda conn, scope: session_report.read(conn, names, scope))
    rows = session_report.grouped(found)
    if as_json:
        steepest = [documents.session(names, each) for each in found[:_SESSIONS]]
        tables.document(console, {"groups": [documents.session_row(names, row) for row in rows], "steepest": steepest})
        return
    if not found:
        tables.sentence(console, "No session in that time. A request names its session in the header x-session-id.")
        return
    numbers = ("sessions", "requests", "prompt", "growth", "steepest", "cached")
    cells = [
        (*row.group, f"{row.sessions:,}", f"{row.turns:,.0f}", f"{row.prompt:,.0f}", *_growth(row)) for row in rows
    ]
    tables.show(console, (*names, *numbers), cells, whole=names[:1], wide=("cached",), numbers=numbers)
    if console.is_terminal:
        text = "requests and prompt: medians. growth: tokens that each prompt is longer than the one before it."
        tables.sentence(console, f"{text}\n", "dim")
        _steepest(names, [each for each in found[:_SESSIONS] if each.slope is not None and each.slope > 0])


def _steepest(names: Sequence[str], found: Sequence[Session]) -> None:
    numbers = ("requests", "last prompt", "growth")
    cells = [(e.session, *e.group, f"{e.turns:,}", f"{e.prompt:,}", _tokens(e.slope)) for e in found]
    if cells:
        tables.show(console, ("session", *names, *numbers), cells, whole=("session",), numbers=numbers)


def _growth(row: SessionRow) -> tuple[str | None, ...]:
    return _tokens(row.slope), _tokens(row.steepest), _percent(row.cached_share)


def _tokens(slope: float | None) -> str | None:
    return None if slope is None else f"{slope:+,.0f}"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.0f} %"
