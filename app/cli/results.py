"""`slackwater results`: the answers of a batch as NDJSON or as a table, optionally joined with the input rows."""

import contextlib
import csv
import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
import typer

from app import processes
from app.cli import input_files, progress_bar
from app.cli.batch_ids import resolve
from app.cli.client import Client
from app.cli.options import errors, settings
from app.engines.native_response import answer_in
from app.user_errors import Failure

OutputFormat = Literal["jsonl", "csv", "tsv", "parquet"]
_FORMATS: dict[str, OutputFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
}
_FORMATS[".parquet"] = "parquet"
_ERROR = "error"
_PARQUET_ROWS = 4096


def results(
    request_id: Annotated[str, typer.Argument(metavar="ID", help="id of the batch, as `slackwater submit` printed it")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="file: .jsonl, .csv, .tsv or .parquet; default: standard output"),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="only the items that failed")] = False,
    join: Annotated[
        Path | None,
        typer.Option(metavar="INPUT", help="the submitted file; its rows are printed with their answers"),
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help=f"with --join: format of INPUT: {', '.join(input_files.KINDS)}")
    ] = None,
    column: Annotated[str, typer.Option(help="with --join: name of the column for the answers")] = "answer",
) -> None:
    """Print or save the results of a batch. They are available while it runs."""
    kind = input_files.kind(join, form) if join else None
    to = _output_format(output, kind)
    with Client.of(settings()) as client:
        batch = client.get(f"/ai/batches/{resolve(client, request_id)}")
        found = _lines(client, batch, failed=failed)
        if join and kind:
            write(output, to, _joined(join, kind, found, batch, column, failed=failed))
        elif to == "jsonl":
            write_lines(output, found)
        else:
            write(output, to, (_flat(line) for line in found))
    if not progress_bar.final(batch):
        done, total = progress_bar.counts(batch)
        ended = f"The batch is {batch['status']}: {done:,} of {total:,} items have ended so far."
        errors.print(f"{ended} Results come in the order of the input, up to the first item that has not ended.")


def _output_format(output: Path | None, kind: input_files.Kind | None) -> OutputFormat:
    """The format to write: by the output's name, else that of the joined input, else NDJSON."""
    if output is None:
        return "jsonl" if kind in (None, "items", "openai") else "tsv" if kind == "tsv" else "csv"
    if (form := _FORMATS.get(output.suffix.lower())) is None:
        raise Failure(f"{output}: the format is not known by this name.", f"Use one of {', '.join(_FORMATS)}.")
    return form


def _lines(client: Client, batch: dict[str, Any], *, failed: bool) -> Iterator[bytes]:
    """The results as the API sends them: one JSON object each, without the line feed."""
    path = client.below_account(f"/ai/batches/{batch['request_id']}/results")
    with (
        progress_bar.reading(None if failed else progress_bar.counts(batch)[0]) as count,
        client.stream("GET", path, params={"failed": 1 if failed else None}) as response,
    ):
        for line in split_lines(response.iter_bytes()):
            yield line
            count()


def split_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a body that are not empty. Only a line feed ends a line; answers may contain other separators."""
    rest = b""
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        yield from filter(None, lines)
    if rest:
        yield rest


def _flat(line: bytes) -> dict[str, Any]:
    """A result as a row of a table."""
    entry = orjson.loads(line)
    answer, error = _outcome(entry)
    return {"id": entry["id"], "reference": entry.get("external_reference"), "answer": answer, _ERROR: error}


def _outcome(entry: dict[str, Any]) -> tuple[str | None, str | None]:
    if entry["success"]:
        return _answer(entry["result"]), None
    error = entry.get("error") or {}
    return None, str(error.get("message") or error)


def _answer(result: dict[str, Any]) -> str:
    """The text of an answer. Without text, as for embeddings and tool calls, the whole result as JSON."""
    text = answer_in(result)
    return text if isinstance(text, str) else orjson.dumps(text if text is not None else result).decode()


def _joined(
    file: Path, kind: input_files.Kind, lines: Iterable[bytes], batch: dict[str, Any], column: str, *, failed: bool
) -> Iterator[dict[str, Any]]:
    """The input rows with answer and error. The n-th row is the item with `id` n. Raises Failure if the row count differs."""
    count, total = sum(1 for _ in input_files.rows(file, kind)), batch["progress"]["total"]
    if count != total:
        raise Failure(f"{file} has {count:,} rows, the batch has {total:,} items.", "Join the file that was submitted.")
    found = {}
    for line in lines:
        entry = orjson.loads(line)
        found[entry["id"]] = _outcome(entry)
    for number, row in enumerate(input_files.rows(file, kind)):
        if taken := {column, _ERROR} & row.keys():
            raise Failure(f"{file} already has a column '{min(taken)}'.", "Choose another name with --column.")
        answer, error = found.get(number, (None, None))
        if not failed or error is not None:
            yield {**row, column: answer, _ERROR: error}


def write_lines(output: Path | None, lines: Iterable[bytes]) -> None:
    """Write lines to standard output, or to a file that appears when it is complete."""
    with _target(output) as file:
        for line in lines:
            file.write(line + b"\n")


def write(output: Path | None, form: OutputFormat, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows in a format to standard output, or to a file that appears when it is complete."""
    if form == "jsonl":
        write_lines(output, (orjson.dumps(row) for row in rows))
    elif form == "parquet":
        _write_parquet(output, rows)
    else:
        with _target(output) as file:
            _write_table(file, rows, "," if form == "csv" else "\t")


def _write_table(file: Any, rows: Iterable[dict[str, Any]], delimiter: str) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer: Any = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(text, list(row), delimiter=delimiter, lineterminator="\n")
            writer.writeheader()
        writer.writerow(row)
    text.detach()


def _write_parquet(output: Path | None, rows: Iterable[dict[str, Any]]) -> None:
    if output is None:
        raise Failure("Parquet cannot be written to standard output.", "Name a file with --output.")
    parquet = input_files.parquet_module()
    import pyarrow

    with _target(output) as file, contextlib.ExitStack() as closing:
        schema: Any = None
        writer: Any = None
        for page in _pages(rows):
            if schema is None:
                found = pyarrow.Table.from_pylist(page).schema
                schema = pyarrow.schema(
                    [each.with_type(pyarrow.string()) if each.type == pyarrow.null() else each for each in found]
                )
                writer = closing.enter_context(parquet.ParquetWriter(file, schema))
            writer.write_table(pyarrow.Table.from_pylist(page, schema=schema))


def _pages(rows: Iterable[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    page: list[dict[str, Any]] = []
    for row in rows:
        page.append(row)
        if len(page) == _PARQUET_ROWS:
            yield page
            page = []
    if page:
        yield page


@contextmanager
def _target(output: Path | None) -> Iterator[Any]:
    """A binary file to write to. It gets its name only when it is complete."""
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if not output.parent.is_dir():
        raise Failure(
            f"{output}: there is no folder {output.parent}.", "Create it, or choose another file with --output."
        )
    partial = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with processes.usual_modes():
            file = partial.open("wb")
        with file:
            yield file
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
