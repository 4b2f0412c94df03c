"""`slackwater why`: what a batch waits for, since when, and the latest decisions of its model's engines.

This module only prints. The sentences are in `app.batches.why_text`.
"""

from typing import Annotated, Any

import typer
from rich.text import Text

from app.batches import why_text
from app.cli import batch_ids, pipeline, pipeline_ids, pipeline_view, tables
from app.cli.client import Client
from app.cli.options import Json, console, settings
from app.cli.text import done_of, places
from app.quantities import many
from app.user_errors import Failure

Object = dict[str, Any]
_PASSED, _BLOCKED, _AHEAD = Text("✓", "green"), Text("✗", "yellow"), Text("·", "dim")
_COLUMNS = ("at", "engine", "by", "change", "requests", "because")


def why(
    batch: Annotated[
        str, typer.Argument(metavar="ID", help="a batch, as request_id or batch_…, or a pipeline, as pipe_…")
    ],
    item: Annotated[
        str | None,
        typer.Argument(help="of a pipeline: the custom_id of a line of its input, or the number of a line without one"),
    ] = None,
    last: Annotated[int, typer.Option(min=0, max=1000, help="number of the engines' latest decisions to show")] = 8,
    as_json: Json = False,
) -> None:
    """Explain why a batch or a pipeline waits, since when, and what its engines decided last."""
    with Client.of(settings()) as client:
        if batch.startswith(pipeline_ids.PREFIX):
            _explain_pipeline(client, pipeline_ids.resolve(client, batch), item, as_json=as_json)
            return
        if item is not None:
            raise Failure(
                "Only an item of a pipeline is explained.", f"`slackwater batch show {batch}` explains failures."
            )
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


def _explain_pipeline(client: Client, pipeline_id: str, item: str | None, *, as_json: bool) -> None:
    """What each stage of a pipeline waits for; of an item, what became of it."""
    if item is not None:
        found = pipeline.lineage(client, pipeline_id, item)
    else:
        found = pipeline_ids.call(client, "GET", f"/{pipeline_id}")
    if as_json:
        tables.document(console, found)
    elif item is not None:
        pipeline.print_lineage(found)
    else:
        _print_stages(found)


def _print_stages(found: Object) -> None:
    waiting = found["waiting"]
    reason = f"Waiting: {waiting['message']}" if waiting else f"The pipeline is {pipeline_view.words(found['status'])}."
    tables.sentence(console, reason, "bold yellow" if waiting else "bold")
    console.print()
    rows = []
    for stage in found["stages"]:
        link = stage["waiting"]
        sign = _PASSED if link is None else _AHEAD if link["code"] == "dependency" else _BLOCKED
        says = link["message"] if link else pipeline_view.words(stage["status"])
        rows.append((sign, Text(stage["id"]), Text(link["code"] if link else "", "cyan"), says))
    tables.lines(console, rows)


def _headline(found: Object) -> tuple[str, str]:
    waiting = found["waiting"] and found["waiting"]["message"]
    style = "bold yellow" if waiting else "bold" if found["status"] in why_text.ENDS else "bold green"
    return why_text.headline(found["status"], waiting, places(found["progress"])), style


def _standing(found: Object) -> str:
    """Model, counts, and since when the batch waits. A refused batch has no model."""
    progress = found["progress"]
    facts = [found["model"]] if found["model"] else []
    facts.append(done_of(progress["succeeded"], progress["failed"], many(progress["total"], "item")))
    if since := (found["waiting"] or {}).get("since"):
        facts.append(f"since {tables.when(since, brief=True)}")
    return " · ".join(facts)


def _chain(found: Object) -> list[tuple[Text, Text, str]]:
    """The conditions of the batch: those it meets, the one that blocks it, and those after that."""
    rows, chain = [], found["chain"]
    blocked = next((n for n, link in enumerate(chain) if link["blocks"]), None)
    for n, link in enumerate(chain):
        passed = _PASSED if link["met"] and (blocked is None or n < blocked) else _AHEAD
        rows.append((_BLOCKED if n == blocked else passed, Text(link["code"], "cyan"), link["message"]))
    return rows


def _turn(before: object, after: object) -> str:
    """What a decision has changed; a value that it has not changed is named once."""
    return f"{before} → {after}" if before != after else f"{after}, as before"


def _decision(found: Object) -> tuple[object, ...]:
    change, requests = (_turn(found[f"was_{name}"], found[name]) for name in ("reason", "allowance"))
    at = tables.when(found["at"], brief=console.is_terminal)
    return at, found["engine"], found["layer"].upper(), change, requests, found["because"]
