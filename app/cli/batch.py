"""`slackwater batch …`: list and show an account's batches; pause, resume, cancel and retry them; delete their contents."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from app.cli import batch_ids, progress_bar, tables
from app.cli.client import Client
from app.cli.options import BatchId, Json, console, pairs, settings
from app.cli.text import done_of, places
from app.cli.unchanged import unchanged
from app.quantities import duration, many

app = typer.Typer(
    help="List and show batches; pause, resume, cancel and retry them; delete their contents.", no_args_is_help=True
)

Object = dict[str, Any]
_COLUMNS = ("batch", "state", "done", "failed", "submitted", "model", "ended", "tags")
_WIDE = ("model", "ended", "tags")


@app.command("list")
def show_list(
    state: Annotated[
        list[str] | None, typer.Option(help="only in this state, such as running or failed; may be repeated")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="only of this model; may be repeated")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="only with this tag; if repeated, with all of them")] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE: only with this metadata; may be repeated")
    ] = None,
    created_after: Annotated[datetime | None, typer.Option(help="created at or after this local time")] = None,
    created_before: Annotated[datetime | None, typer.Option(help="created before this local time")] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=batch_ids.MOST_SEARCHED, help="largest number of batches to list")
    ] = 20,
    as_json: Json = False,
) -> None:
    """List the batches of the account, newest first."""
    filters = {
        "state": state,
        "model": model,
        "tag": tag,
        "metadata": [f"{key}:{value}" for key, value in pairs(metadata).items()],
        "created_after": _zoned(created_after),
        "created_before": _zoned(created_before),
    }
    with Client.of(settings()) as client, tables.patience("Reading the list …"):
        found = list(batch_ids.newest(client, limit, **filters))
    if as_json:
        tables.document(console, found)
    else:
        tables.show(
            console, _COLUMNS, map(_row, found), whole=("batch", "state"), wide=_WIDE, numbers=("done", "failed")
        )


@app.command("show")
def show(
    batch: BatchId,
    watch: Annotated[bool, typer.Option("--watch", help="show progress until the batch ends")] = False,
    as_json: Json = False,
) -> None:
    """Show a batch: its progress, its estimated end, what it waits for, and why items failed."""
    with Client.of(settings()) as client:
        request_id = batch_ids.resolve(client, batch)
        found = progress_bar.watch(client, request_id) if watch else client.get(f"/ai/batches/{request_id}")
    if watch and not as_json:
        raise typer.Exit(progress_bar.exit_code(found))
    if as_json:
        tables.document(console, found)
        return
    tables.facts(console, _described(found))
    _print_reasons(found)


@app.command("pause")
def pause(batch: BatchId, as_json: Json = False) -> None:
    """Start no more items of a batch. Items that already run are finished."""
    _change(batch, "pause", "{id} is paused; `slackwater batch resume` continues it.", as_json=as_json)


@app.command("resume")
def resume(batch: BatchId, as_json: Json = False) -> None:
    """Continue a paused batch."""
    _change(batch, "resume", "{id} continues.", as_json=as_json)


@app.command("cancel")
def cancel(batch: BatchId, as_json: Json = False) -> None:
    """Cancel a batch: drop queued items, abort running ones, keep the results."""
    _change(batch, "cancel", "{id} is cancelled; running items are aborted within one heartbeat.", as_json=as_json)


@app.command("retry")
def retry(batch: BatchId, as_json: Json = False) -> None:
    """Run the items again that failed, were cancelled or expired."""
    _change(batch, "retry", "{id} runs again, with {open} that had no answer.", as_json=as_json)


@app.command("rm")
def remove(batch: BatchId, as_json: Json = False) -> None:
    """Delete the requests and answers of a batch that has ended. Its counts, usage and events remain."""
    with Client.of(settings()) as client:
        request_id = batch_ids.resolve(client, batch)
        found = client.call("DELETE", f"/ai/batches/{request_id}")
    if as_json:
        tables.document(console, found)
        return
    tables.sentence(console, f"The contents of {request_id} are deleted; its counts and usage remain.")


def _change(batch: str, verb: Literal["pause", "resume", "cancel", "retry"], done: str, *, as_json: bool) -> None:
    with Client.of(settings()) as client:
        request_id = batch_ids.resolve(client, batch)
        before = client.get(f"/ai/batches/{request_id}")
        found = client.call("POST", f"/ai/batches/{request_id}/{verb}")
    if as_json:
        tables.document(console, found)
        return
    counts = found["progress"]
    unanswered = many(counts["total"] - counts["succeeded"], "item")
    same = unchanged(request_id, verb, before["status"], tables.when(before["finished_at"]))
    tables.sentence(console, same or done.format(id=request_id, open=unanswered))


def _described(batch: Object) -> dict[str, object]:
    """The lines of `batch show`, by name, from the API's answer. A refused batch has no model."""
    run = batch["run"]
    return {
        "batch": batch["request_id"],
        "model": batch["model"],
        "state": batch["status"] + (f", run {run}" if run > 1 else ""),
        "items": "; ".join(_items(batch)),
        "tokens": _tokens(batch["usage"]),
        "tags": ", ".join(batch["tags"]) or None,
        "metadata": ", ".join(f"{key}={value}" for key, value in (batch["metadata"] or {}).items()) or None,
        "submitted": tables.when(batch["created_at"]),
        "ended": tables.when(batch["finished_at"]),
        "expires": tables.when(batch["expires_at"]),
        "done": _eta(batch.get("estimate")),
        "waits": (batch.get("waiting") or {}).get("message"),
    }


def _print_reasons(batch: Object) -> None:
    """Print why items failed, the most frequent reason first, or which lines of its file made the API refuse the batch."""
    failed = [(f"{each['count']:,}", each["message"]) for each in batch.get("failures") or ()]
    wrong = [(each["line"], each["message"]) for each in batch.get("errors") or ()]
    for columns, rows in ((("items", "why they failed"), failed), (("line", "why the batch was refused"), wrong)):
        if rows:
            console.print()
            tables.show(console, columns, rows, numbers=columns[:1])


def _row(batch: Object) -> tuple[object, ...]:
    progress, brief = batch["progress"], console.is_terminal
    share = f"{progress['succeeded'] + progress['failed']}/{progress['total']}"
    made, ended = (tables.when(batch[name], brief=brief) for name in ("created_at", "finished_at"))
    return batch["request_id"], batch["status"], share, progress["failed"], made, batch["model"], ended, batch["tags"]


def _items(batch: Object) -> Iterator[str]:
    progress = batch["progress"]
    yield done_of(progress["succeeded"], progress["failed"], f"{progress['total']:,}")
    if batch["finished_at"] is None:
        yield places(progress)


def _tokens(usage: Object) -> str | None:
    """Tokens of the results that are stored."""
    if not usage["total_tokens"]:
        return None
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return f"{usage['prompt_tokens']:,} in ({cached:,} cached), {usage['completion_tokens']:,} out"


def _eta(estimate: Object | None) -> str | None:
    if estimate is None:
        return None
    if (seconds := estimate["eta_seconds"]) is None:
        return f"unknown: {estimate['no_eta']}"
    return f"in about {duration(seconds)} (confidence: {estimate['confidence']})"


def _zoned(moment: datetime | None) -> str | None:
    return moment.astimezone().isoformat() if moment else None
