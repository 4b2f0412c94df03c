"""`slackwater pipeline …`: submit, check, list, show and watch pipelines; read their results; change their state."""

import tempfile
import time
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import orjson
import typer
from rich.live import Live

from app import clock
from app.batches.validation import strict_json
from app.cli import input_files, pipeline_ids, pipeline_view, results, tables
from app.cli.client import Client, response_json
from app.cli.options import Json, checked_key, console, errors, settings
from app.cli.unchanged import unchanged
from app.user_errors import Failure

app = typer.Typer(
    help="Submit, check, list and watch pipelines; read their results; change their state.", no_args_is_help=True
)

Object = dict[str, Any]
Definition = Annotated[Path, typer.Argument(help="file with the definition of the pipeline, as JSON")]
PipelineId = Annotated[str, typer.Argument(metavar="PIPELINE", help="pipe_…, or at least its first 8 digits")]
InputFile = Annotated[
    Path | None,
    typer.Option(
        "--input",
        "-i",
        help="file of its input, in place of `input` in the definition: NDJSON, CSV, TSV, Parquet, or one item.text a line",
    ),
]
Limit = Annotated[int | None, typer.Option(min=1, help="use so many lines of the input: a sample")]
_LIST = ("pipeline", "name", "state", "done", "failed", "created", "cost")
_FORM = "A definition is one JSON object with `stages`, and with `input` or --input."
_PAUSES, _QUICK_SECONDS, _LINE_SECONDS = (0.5, 2.0), 30.0, 10.0


@app.command("submit")
def submit(
    definition: Definition,
    input_file: InputFile = None,
    limit: Limit = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="a second submit with this key returns the first pipeline")
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="show progress until the pipeline ends; the exit code is 1 if it fails or expires"
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Create a pipeline from its definition and print its id."""
    headers = {"idempotency-key": key} if (key := checked_key(idempotency_key)) else {}
    with Client.of(settings()) as client:
        given = _definition(client, definition, input_file, limit)
        made = pipeline_ids.call(client, "POST", json=given, headers=headers)
        if watch:
            errors.print(f"pipeline {made['id']}", highlight=False)
            made = _watched(client, made["id"])
    if as_json:
        tables.document(console, made)
    elif not watch:
        tables.raw(console, made["id"])
    if watch:
        raise typer.Exit(0 if made["status"] in ("completed", "cancelled") else 1)


@app.command("check")
def check(definition: Definition, input_file: InputFile = None, limit: Limit = None, as_json: Json = False) -> None:
    """Check a definition: requests of a sample, and an estimate of what it needs. Nothing is queued."""
    with Client.of(settings()) as client:
        found = pipeline_ids.call(client, "POST", "/check", json=_definition(client, definition, input_file, limit))
    if as_json:
        tables.document(console, found)
        return
    for stage in found["stages"]:
        samples = stage["sample"]
        for sample in [*samples[:1], *(each for each in samples[1:] if "error" in each)]:
            tables.sentence(console, f"{stage['id']}, line {sample['custom_id'] or '–'}", "bold")
            tables.sentence(console, pipeline_view.sample(sample))
            console.print()
    numbers = pipeline_view.CHECK_COLUMNS[2:]
    tables.sentence(console, "Items at most; tokens, cost and time as an estimate from the sample", "italic")
    tables.show(console, pipeline_view.CHECK_COLUMNS, pipeline_view.check(found), numbers=numbers)


@app.command("list")
def show_list(
    limit: Annotated[int, typer.Option(min=1, max=pipeline_ids.MOST_SEARCHED, help="largest number to list")] = 20,
    as_json: Json = False,
) -> None:
    """List the pipelines of the account, newest first."""
    with Client.of(settings()) as client, tables.patience("Reading the list …"):
        found = list(pipeline_ids.newest(client, limit))
    if as_json:
        tables.document(console, found)
        return
    tables.show(
        console,
        _LIST,
        map(_row, found),
        whole=("pipeline", "state", "created"),
        wide=("cost",),
        numbers=("done", "failed"),
    )


def _row(found: Object) -> tuple[object, ...]:
    shown, counts = pipeline_view.facts(found), found["request_counts"]
    done = f"{counts['completed'] + counts['failed']}/{counts['total']}"
    created = pipeline_view.created(found, brief=console.is_terminal)
    return found["id"], found["name"], shown["state"], done, counts["failed"], created, shown["cost"]


@app.command("show")
def show(pipeline: PipelineId, as_json: Json = False) -> None:
    """Show a pipeline: its stages with their counts, what each waits for, its cost and its estimated end."""
    with Client.of(settings()) as client:
        found = pipeline_ids.call(client, "GET", f"/{pipeline_ids.resolve(client, pipeline)}")
    if as_json:
        tables.document(console, found)
        return
    _print(found)


def _print(found: Object) -> None:
    tables.facts(console, pipeline_view.facts(found))
    console.print()
    rows = pipeline_view.rows(found, bars=console.is_terminal)
    numbers = pipeline_view.COLUMNS[3:7]
    tables.show(
        console, pipeline_view.COLUMNS, rows, whole=("stage", "done"), wide=("model", "tokens"), numbers=numbers
    )


@app.command("watch")
def watch(pipeline: PipelineId) -> None:
    """Show a pipeline live until it ends. Ctrl-C ends only the picture. The exit code is 1 if it fails or expires."""
    with Client.of(settings()) as client:
        found = _watched(client, pipeline_ids.resolve(client, pipeline))
    raise typer.Exit(0 if found["status"] in ("completed", "cancelled") else 1)


def _watched(client: Client, pipeline_id: str) -> Object:
    """Show the pipeline until it ends, then print it. Returns it."""
    began, printed, found = clock.monotonic(), -_LINE_SECONDS, Object()
    with Live(console=errors, transient=True, auto_refresh=False) as picture:
        while (found := pipeline_ids.call(client, "GET", f"/{pipeline_id}"))["status"] not in pipeline_view.FINAL:
            now = clock.monotonic()
            if errors.is_terminal:
                picture.update(pipeline_view.live(found), refresh=True)
            elif now - printed >= _LINE_SECONDS:
                printed = now
                errors.print(pipeline_view.brief(found), soft_wrap=True, highlight=False)
            time.sleep(_PAUSES[now - began > _QUICK_SECONDS])
    _print(found)
    return found


@app.command("results")
def show_results(
    pipeline: PipelineId,
    stage: Annotated[str | None, typer.Option(help="id of the stage; default: the last one")] = None,
    after: Annotated[int, typer.Option(help="only items with numbers above this")] = -1,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="file of lines of JSON; default: standard output")
    ] = None,
) -> None:
    """Print or save the results of a stage, an item a line. They are available while it runs."""
    with Client.of(settings()) as client:
        path = f"{pipeline_ids.URL}/{pipeline_ids.resolve(client, pipeline)}/results"
        with client.stream("GET", path, params={"stage": stage, "after": after}) as response:
            results.write_lines(output, results.split_lines(response.iter_bytes()))
            complete = response.headers.get("x-slackwater-complete") == "true"
    if not complete:
        errors.print("The stage still runs; these are the results so far. Run this again when it has ended.")


@app.command("item")
def item(
    pipeline: PipelineId,
    custom_id: Annotated[
        str, typer.Argument(help="custom_id of a line of the input, or the number, from 0, of a line without one")
    ],
    as_json: Json = False,
) -> None:
    """Show what became of one line of the input, stage by stage."""
    with Client.of(settings()) as client:
        found = lineage(client, pipeline_ids.resolve(client, pipeline), custom_id)
    if as_json:
        tables.document(console, found)
        return
    print_lineage(found)


def lineage(client: Client, pipeline_id: str, custom_id: str) -> Object:
    """What became of a line of a pipeline's input. Raises Failure."""
    return pipeline_ids.call(client, "GET", f"/{pipeline_id}/items/{quote(custom_id, safe='')}")


def print_lineage(found: Object) -> None:
    """Print what became of a line."""
    columns = pipeline_view.LINEAGE_COLUMNS
    tables.show(
        console, columns, pipeline_view.lineage(found), whole=("", "stage"), wide=("model",), numbers=("tokens",)
    )


@app.command("pause")
def pause(pipeline: PipelineId, as_json: Json = False) -> None:
    """Start no more items of any stage. Items that already run are finished."""
    _change(pipeline, "pause", "{id} is paused; `slackwater pipeline resume` continues it.", as_json=as_json)


@app.command("resume")
def resume(
    pipeline: PipelineId,
    usd: Annotated[
        float | None,
        typer.Option(
            min=0.000001, help="its new budget in US dollars, what it has cost included; without it the budget stays"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Continue a paused pipeline, whatever it paused for."""
    body = None if usd is None else {"budget": {"usd": usd}}
    _change(pipeline, "resume", "{id} continues.", body, as_json=as_json)


@app.command("cancel")
def cancel(pipeline: PipelineId, as_json: Json = False) -> None:
    """Cancel a pipeline: drop queued items, abort running ones, keep the results of every stage."""
    _change(pipeline, "cancel", "{id} is cancelled; running items are aborted within one heartbeat.", as_json=as_json)


@app.command("retry")
def retry(pipeline: PipelineId, as_json: Json = False) -> None:
    """Run what has no answer again in a pipeline that has ended, and all that comes of it."""
    _change(pipeline, "retry", "{id} runs again.", as_json=as_json)


@app.command("rm")
def remove(pipeline: PipelineId, as_json: Json = False) -> None:
    """Delete the requests and answers of a pipeline that has ended, and its definition. Counts and usage remain."""
    with Client.of(settings()) as client:
        found = pipeline_ids.call(client, "DELETE", f"/{pipeline_ids.resolve(client, pipeline)}")
    if as_json:
        tables.document(console, found)
        return
    tables.sentence(console, f"The contents of {found['id']} are deleted; its counts and usage remain.")


def _change(pipeline: str, verb: str, done: str, body: Object | None = None, *, as_json: bool) -> None:
    with Client.of(settings()) as client:
        path = f"/{pipeline_ids.resolve(client, pipeline)}"
        before = pipeline_ids.call(client, "GET", path)
        found = pipeline_ids.call(client, "POST", f"{path}/{verb}", **({} if body is None else {"json": body}))
    if as_json:
        tables.document(console, found)
        return
    same = "" if body else unchanged(found["id"], verb, before["status"], pipeline_view.ended(before))
    tables.sentence(console, same or done.format(id=found["id"]))


def _definition(client: Client, path: Path, input_file: Path | None, limit: int | None) -> Object:
    """The definition in a file, with its input uploaded. Raises Failure."""
    if not path.is_file():
        raise Failure(f"{path}: there is no such file.", "Name the file with the definition of the pipeline.")
    try:
        given = strict_json.loads(path.read_bytes())
    except strict_json.JsonError as error:
        raise Failure(f"{path}: {error}.", _FORM) from error
    if not isinstance(given, dict):
        raise Failure(f"{path} is not a JSON object.", _FORM)
    if input_file is not None:
        given["input"] = {"file_id": _uploaded(client, input_file)}
    elif "input" not in given:
        raise Failure(f"{path} has no input.", "Name a file with --input, or write `input` in the definition.")
    return given | ({} if limit is None else {"limit": limit})


def _uploaded(client: Client, path: Path) -> str:
    """The id of a file with an object for each row. Raises Failure."""
    with tempfile.TemporaryFile() as lines:
        for row in input_files.rows(path, input_files.kind(path, None)):
            lines.write(orjson.dumps(row) + b"\n")
        lines.seek(0)
        sent = {"file": (f"{path.stem}.jsonl", lines, "application/jsonl")}
        with client.stream("POST", "/v1/files", data={"purpose": "batch"}, files=sent) as response:
            return str(response_json(response)["id"])
