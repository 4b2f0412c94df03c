"""`slackwater incidents`: what died, closed, stopped, started and changed, in order. Works on the database."""

from datetime import timedelta
from typing import Annotated

import typer
from rich.text import Text

from app import clock
from app.batches import incidents as timeline
from app.batches.incidents import Incident
from app.cli import tables
from app.cli.database import on_database
from app.cli.options import Json, console, settings
from app.db.pool import Connection
from app.quantities import seconds_of

_MOST_DAYS = 35
_MOST_NAMED = 8  # subjects in a message
_WELL = {"engine.ready", "gate.opened", "breaker.closed", "budget.renewed"}


def incidents(
    since: Annotated[str, typer.Option(help="how far back: 90m, 24h or 7d")] = "24h",
    trouble: Annotated[
        bool, typer.Option("--trouble", help="only what stopped: deaths, closed gates, open breakers, spent budgets")
    ] = False,
    subject: Annotated[str | None, typer.Option(help="only of this engine, part, webhook or budget")] = None,
    limit: Annotated[
        int, typer.Option("-n", "--limit", min=1, max=timeline.MOST, help="number of latest incidents to show")
    ] = 100,
    as_json: Json = False,
) -> None:
    """Show what died, closed, stopped, started and changed, in order, with the ids of engines, batches, deliveries and traces."""
    seconds = seconds_of(since)
    if not seconds or seconds > _MOST_DAYS * 86_400:
        raise typer.BadParameter(f"--since must be a length of time like 90m, 24h or 7d, at most {_MOST_DAYS}d.")
    begin = clock.now() - timedelta(seconds=seconds)

    async def read(conn: Connection) -> tuple[list[Incident], set[str]]:
        found = await timeline.timeline(conn, since=begin, only_trouble=trouble, subject=subject, limit=limit)
        others = await timeline.timeline(conn, since=begin) if subject and not found else []
        return found[::-1], {each.subject for each in others}

    found, known = on_database(settings(), read)
    if as_json:
        tables.document(console, [timeline.document(each) for each in found])
    elif found:
        tables.show(console, ("at", "what", "", "ids"), map(_row, found), whole=("at",), wide=("ids",))
    elif subject and subject not in known:
        named = f" Something is known of: {', '.join(sorted(known)[:_MOST_NAMED])}." if known else ""
        words = f'Nothing is known of a subject "{subject}" in the last {since}.{named}'
        console.print(words, markup=False, highlight=False)
    else:
        console.print(f"Nothing happened in the last {since}.", markup=False, highlight=False)


def _row(each: Incident) -> tuple[object, ...]:
    style = "red" if each.trouble else "green" if each.kind in _WELL else ""
    account = f" ({each.account_id})" if each.account_id else ""
    ids = ", ".join(f"{name} {_short(value)}" for name, value in each.ids.items() if value != each.subject)
    return tables.when(each.position.at, brief=console.is_terminal), Text(each.kind, style), each.message + account, ids


def _short(value: object) -> str:
    """An id, or how many they are."""
    return f"{len(value)}: {value[0]} …" if isinstance(value, list) and len(value) > 1 else str(value).strip("[]'")
