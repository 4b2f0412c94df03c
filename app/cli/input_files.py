"""Reads the files that `slackwater submit` accepts, row by row, so that a file may be larger than memory.

items     NDJSON, one item of a Workers AI batch per line
openai    NDJSON, one request of OpenAI's batch format per line
prompts   text, one prompt per line
csv, tsv, parquet   a table; a template makes a prompt from each row
"""

import csv
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TextIO

from app import optional_packages
from app.batches.validation import not_json, strict_json, text_kinds
from app.batches.validation.strict_json import JsonError
from app.sentences import ended
from app.user_errors import Failure

Kind = Literal["items", "openai", "prompts", "csv", "tsv", "parquet"]
KINDS: tuple[Kind, ...] = ("items", "openai", "prompts", "csv", "tsv", "parquet")
Row = Mapping[str, Any]

LINE = "text"  # the only column of a file of prompts
_SUFFIXES: dict[str, Kind] = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".txt": "prompts"}
_JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
_OPENAI_KEYS = {"custom_id", "method", "url", "body"}
_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_PARQUET_ROWS = 1024
_HEAD_BYTES = 64 * 1024


def kind(file: Path, given: str | None) -> Kind:
    """The `given` kind, else the kind that the file's name or content shows. Raises Failure."""
    if not file.is_file():
        raise Failure(f"{file}: there is no such file." if not file.is_dir() else f"{file} is a folder, not a file.")
    if given is None:
        return kind_of(file)
    if (known := next((each for each in KINDS if each == given), None)) is None:
        raise Failure(f"--format: must be one of {', '.join(KINDS)}, got '{given}'")
    return known


def kind_of(file: Path) -> Kind:
    """The kind that a file's name shows, else its first line. Raises Failure if it is empty or cannot be read."""
    if found := _SUFFIXES.get(file.suffix.lower()):
        return found
    if what := text_kinds.no_text(_head(file)):
        raise Failure(f"{file} is {what}.")
    first, value, problem = _first_line(file), None, ""
    try:
        value = strict_json.loads(first.encode())
    except JsonError as error:
        problem = str(error)
    if isinstance(value, dict):
        return "openai" if len(_OPENAI_KEYS & value.keys()) >= 2 else "items"
    if file.suffix.lower() in _JSON_SUFFIXES or first.lstrip().startswith(("{", "[")):
        if what := text_kinds.of_file(_head(file)):
            raise Failure(f"{file} is {what}.")
        remedy = "Each line must be one whole JSON object. For plain prompts add `--format prompts`."
        raise Failure(f"{file}, line 1: {problem or _no_object(value)}.", remedy)
    return "prompts"


def _first_line(file: Path) -> str:
    """The first line that is not empty. Raises Failure."""
    try:
        with opened(file) as lines:
            first = next((line for line in lines if line.strip()), None)
    except UnicodeDecodeError as error:
        raise _not_utf8(file) from error
    if first is None:
        raise Failure(f"{file} is empty.", "It needs at least one request.")
    return first


def _head(file: Path) -> bytes:
    with file.open("rb") as content:
        return content.read(_HEAD_BYTES).removeprefix(text_kinds.BOM)


def _not_utf8(file: Path) -> Failure:
    """What a file is that is not UTF-8, or which byte of it is not."""
    if what := text_kinds.no_text(_head(file)):
        return Failure(f"{file} is {what}.")
    with file.open("rb") as lines:
        found = ((number, not_json.wrong_byte(line)) for number, line in enumerate(lines, 1))
        number, problem = next(each for each in found if each[1])
    return Failure(f"{file}, line {number}: {problem}.")


def _no_object(value: Any) -> str:
    return f"not a JSON object, but {not_json.kind(value)}"


def opened(file: Path) -> TextIO:
    """Open a UTF-8 text file, with or without a byte order mark."""
    return file.open(encoding="utf-8-sig", newline="")


def rows(file: Path, kind: Kind) -> Iterator[dict[str, Any]]:
    """The rows of a table, the prompts of a text file as rows of the column `text`, or the objects of an NDJSON file.

    Empty lines are skipped, as they are when the file is submitted. Raises Failure that names the line.
    """
    if kind == "parquet":
        yield from _parquet_rows(file)
        return
    try:
        with opened(file) as lines:
            if kind in ("csv", "tsv"):
                yield from _table_rows(file, lines, "," if kind == "csv" else "\t")
            elif kind == "prompts":
                yield from ({LINE: line.rstrip("\r\n")} for line in lines if line.strip())
            else:
                yield from _objects(file, lines)
    except UnicodeDecodeError as error:
        raise _not_utf8(file) from error


def _table_rows(file: Path, lines: TextIO, delimiter: str) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(sys.maxsize)
    reader = csv.DictReader(lines, delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                columns = len(reader.fieldnames or ())
                raise Failure(
                    f"{file}, line {reader.line_num}: the header has {columns} columns, this row has another number."
                )
            yield row
    except csv.Error as error:
        raise Failure(ended(f"{file}, line {reader.line_num}: {error}")) from error


def _objects(file: Path, lines: TextIO) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = strict_json.loads(line.encode())
        except JsonError as error:
            raise Failure(f"{file}, line {number}: {error}.", "Each line must be one whole JSON object.") from error
        if not isinstance(value, dict):
            raise Failure(f"{file}, line {number}: {_no_object(value)}.", "Each line must be one whole JSON object.")
        yield value


def _parquet_rows(file: Path) -> Iterator[dict[str, Any]]:
    parquet = parquet_module()
    import pyarrow

    try:
        with parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(_PARQUET_ROWS):
                yield from batch.to_pylist()
    except pyarrow.ArrowException as error:
        raise Failure(ended(f"{file} is not a Parquet file: {error}")) from error


def parquet_module() -> Any:
    """The module `pyarrow.parquet`, which an extra installs. Raises NotInstalled."""
    optional_packages.PARQUET.need()
    import pyarrow.parquet

    return pyarrow.parquet


def filled(template: str, row: Row) -> str:
    """The template with each `{column}` replaced by the row's value. `{{` and `}}` stand for braces. Raises Failure."""

    def place(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        if match[1] is None:
            raise Failure(f"--prompt: a single '{match[0]}' in the template.", "Write {{ and }} for braces.")
        if match[1] not in row:
            raise Failure(f"--prompt: the file has no column '{match[1]}'.", f"Columns: {', '.join(map(str, row))}.")
        value = row[match[1]]
        return "" if value is None else str(value)

    return _PLACE.sub(place, template)
