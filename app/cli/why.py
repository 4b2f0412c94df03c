"""`slackwater why`: what a batch waits for, since when, and what the engines of its model decided lately."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from app import clock
from app.batches.why import Link, Why
from app.batches.why import why as ask
from app.cli.batches import on_database
from app.cli.text import plain
from app.db.pool import Database
from app.errors import NotFound
from app.headroom import journal, words
from app.headroom.journal import Entry
from app.settings import Settings
from app.tenants.service import Tenant


@dataclass(frozen=True, slots=True)
class Answer:
    """The chain of a batch, and the latest decisions with their engine's name, newest first."""

    why: Why
    decisions: list[tuple[str, Entry]]


def why(settings: Settings, account: str, request_id: UUID, last: int, console: Console, *, as_json: bool) -> None:
    """Print the answer for one batch, with so many decisions of its engines. Raises Failure."""

    async def call(database: Database, tenant: Tenant) -> Answer:
        found = await ask(database, tenant.tenant_id, request_id)
        if found is None:
            raise NotFound(f"No batch {request_id} in account {account}")
        decisions: list[tuple[str, Entry]] = []
        async with database.relaxed() as conn:
            for gate in found.gates:
                decisions += [(gate.engine, entry) for entry in await journal.recent(conn, gate.engine_id, last)]
        decisions.sort(key=lambda decision: decision[1].at, reverse=True)
        return Answer(found, decisions[:last])

    answer = on_database(settings, account, call)
    if as_json:
        print_json(answer, console)
    else:
        print_text(answer, console)


def print_text(answer: Answer, console: Console) -> None:
    """The answer in one line, the chain, the decisions."""
    found, status = answer.why, answer.why.status
    waiting = found.waiting
    head, style = _headline(found, waiting)
    console.print(plain(head), style=style, soft_wrap=True)
    done = f" · {status.ok} of {words.many(status.total, 'item')} done, {status.failed} failed"
    since = f" · since {_moment(waiting.since)}" if waiting and waiting.since else ""
    console.print(Text.assemble(plain(status.model), done, since), style="dim", soft_wrap=True)
    if found.chain:
        console.print()
        console.print(_chain(found))
    if answer.decisions:
        console.print()
        console.print(_decisions(answer.decisions))


def _headline(found: Why, waiting: Link | None) -> tuple[str, str]:
    if found.status.finalized_at is not None:
        return f"The batch is {found.status.state}; it waits for nothing.", "bold"
    if waiting is None:
        return "The batch runs; nothing of it waits.", "bold green"
    return f"Waiting: {waiting.message}", "bold yellow"


def _chain(found: Why) -> Table:
    """What is passed, what holds the batch up, and what comes after that."""
    table = Table.grid(
        Column(width=1), Column(no_wrap=True, style="cyan"), Column(overflow="fold"), padding=(0, 2, 0, 0)
    )
    mark, waiting = Text("✓", "green"), found.waiting
    for link in found.chain:
        if link is waiting:
            table.add_row(Text("✗", "yellow"), link.code, plain(link.message))
            mark = Text("·", "dim")
        else:
            table.add_row(mark if link is not found.chain[-1] else Text("·", "dim"), link.code, plain(link.message))
    return table


def _decisions(decisions: list[tuple[str, Entry]]) -> Table:
    table = Table(
        "at", "engine", "by", "from", "to", "requests", "because", title="Latest decisions", title_justify="left"
    )
    for engine, entry in decisions:
        change = entry.change
        because = words.measure(change.signal, change.value, change.threshold) if change.signal else ""
        requests = f"{change.was_allowance} → {change.allowance}"
        cells = (_moment(entry.at), engine, change.layer.upper(), change.was_reason, change.reason, requests, because)
        table.add_row(*map(plain, cells))
    return table


def print_json(answer: Answer, console: Console) -> None:
    """The whole answer as one JSON document."""
    found = answer.why
    waiting = found.waiting
    document = {
        "request_id": str(found.status.request_id),
        "model": found.status.model,
        "state": str(found.status.state),
        "waiting": _link(waiting) if waiting else None,
        "chain": [_link(link) | {"blocks": link.blocks} for link in found.chain],
        "decisions": [_decision(engine, entry) for engine, entry in answer.decisions],
    }
    console.print(json.dumps(document, indent=2), markup=False, highlight=False, soft_wrap=True)


def _link(link: Link) -> dict[str, Any]:
    return {"code": str(link.code), "message": link.message, "since": _iso(link.since)}


def _decision(engine: str, entry: Entry) -> dict[str, Any]:
    change = entry.change
    return {"at": _iso(entry.at), "engine": engine} | {name: getattr(change, name) for name in change.__slots__}


def _iso(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds") if moment else None


def _moment(moment: datetime) -> str:
    """The local time, with the day unless that is today's."""
    local, today = moment.astimezone(), clock.now().astimezone()
    return f"{local:%H:%M:%S}" if local.date() == today.date() else f"{local:%Y-%m-%d %H:%M:%S}"
