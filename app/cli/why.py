"""`slackwater why`: what a batch waits for, since when, and the latest decisions of its model's engines.

This module only prints. The sentences are in `app.batches.why_text`.
"""

from typing import Annotated, Any

import typer
from rich.text import Text

from app.batches import why_text
from app.cli import batch_ids, tables
from app.cli.client import Client
from app.cli.options import BatchId, Json, console, settings
from app.quantities import many

Object = dict[str, Any]
_PASSED, _BLOCKED, _AHEAD = Text("✓", "green"), Text("✗", "yellow"), Text("·", "dim")
_COLUMNS = ("at", "engine", "by", "change", "requests", "because")


def why(
    batch: BatchId,
    last: Annotated[int, typer.Option(min=0, max=1000, help="number of the engines' latest decisions to show")] = 8,
    as_json: Json = False,
) -> None:
    """Explain why a batch waits, since when, and what its engines decided last."""
    with Client.of(settings()) as client:
        found = client.get(f"/ai/batches/{batch_ids.resolve(client, batch)}/why", last=last)
    if as_json:
        tables.document(console, found)
        return
    tables.sentence(console, *_headline(found))
    tables.sentence(console, _standing(found), "dim")
    if found["chain"]:
        console.print()
        tables.lines(console, _chain(found))
    if found["decisions"]:
        console.print()
        tables.sentence(console, "Latest decisions", "italic")
        tables.show(console, _COLUMNS, map(_decision, found["decisions"]), whole=("at", "by", "requests"))


def _headline(found: Object) -> tuple[str, str]:
    waiting = found["waiting"] and found["waiting"]["message"]
    style = "bold yellow" if waiting else "bold" if found["status"] in why_text.ENDS else "bold green"
    return why_text.headline(found["status"], waiting), style


def _standing(found: Object) -> str:
    """Model, counts, and since when the batch waits. A refused batch has no model."""
    progress = found["progress"]
    total = many(progress["total"], "item")
    facts = [found["model"]] if found["model"] else []
    facts.append(f"{progress['succeeded']:,} of {total} done, {progress['failed']:,} failed")
    if since := (found["waiting"] or {}).get("since"):
        facts.append(f"since {tables.when(since, brief=True)}")
    return " · ".join(facts)


def _chain(found: Object) -> list[tuple[Text, Text, str]]:
    """The conditions of the batch: those it meets, the one that blocks it, and those after that."""
    rows, chain = [], found["chain"]
    blocked = next((n for n, link in enumerate(chain) if link["blocks"]), None)
    for n, link in enumerate(chain):
        passed = _PASSED if n < (len(chain) - 1 if blocked is None else blocked) else _AHEAD
        rows.append((_BLOCKED if n == blocked else passed, Text(link["code"], "cyan"), link["message"]))
    return rows


def _decision(found: Object) -> tuple[object, ...]:
    change = f"{found['was_reason']} → {found['reason']}"
    requests = f"{found['was_allowance']} → {found['allowance']}"
    at = tables.when(found["at"], brief=console.is_terminal)
    return at, found["engine"], found["layer"].upper(), change, requests, found["because"]
