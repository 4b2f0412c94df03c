"""`slackwater submit`: submit a file of items, OpenAI requests, prompts or table rows as a batch."""

import json
import shutil
import sys
import tempfile
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from app.cli import input_files, progress_bar, tables
from app.cli.client import Client, response_json
from app.cli.input_files import KINDS, Kind
from app.cli.options import Json, checked_key, console, errors, pairs, settings
from app.user_errors import Failure

_SHOWN_ERRORS = 5
_BLOCK_BYTES = 256 * 1024
_COPY = "slackwater-stdin-"  # begins the name of the copy of standard input

File = Annotated[
    Path, typer.Argument(help="NDJSON of items or OpenAI requests, prompts, CSV, TSV, Parquet; - is stdin")
]
Model = Annotated[
    str | None, typer.Option("--model", "-m", help="model; default: the engines' model, if there is one only")
]
Template = Annotated[
    str | None, typer.Option(help="template for the rows of a table or text file, as 'Summarise: {text}'")
]
System = Annotated[str | None, typer.Option(help="system message of every prompt")]
MaxTokens = Annotated[int | None, typer.Option(min=1, max=2**31 - 1, help="longest answer to each prompt, in tokens")]
Temperature = Annotated[float | None, typer.Option(min=0, max=5, help="temperature of every prompt")]
Reference = Annotated[str | None, typer.Option(metavar="COLUMN", help="column that names a row in the results")]
Window = Annotated[str | None, typer.Option(help="time until the batch expires, as 90s, 30m, 24h or 7d")]
Tag = Annotated[list[str] | None, typer.Option(help="tag of the batch; may be repeated")]
Metadata = Annotated[list[str] | None, typer.Option(help="KEY=VALUE, metadata of the batch; may be repeated")]
IdempotencyKey = Annotated[str | None, typer.Option(help="a second submit with this key returns the first batch")]
Format = Annotated[str | None, typer.Option("--format", help=f"format of the file: {', '.join(KINDS)}")]
Watch = Annotated[bool, typer.Option("--watch", help="show progress until the batch ends")]


@dataclass(frozen=True, slots=True)
class Prompts:
    """How a row becomes an item: the template, the options of every item, and the column that names the item."""

    template: str | None = None
    system: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    reference: str | None = None

    def item(self, row: input_files.Row) -> dict[str, Any]:
        """The Workers AI item of a row. Raises Failure that names a missing column."""
        text = input_files.filled(self.template or self._usual(row), row)
        item: dict[str, Any] = {"prompt": text}
        if self.system is not None:
            item = {"messages": [{"role": "system", "content": self.system}, {"role": "user", "content": text}]}
        if self.reference is not None:
            if self.reference not in row:
                raise Failure(f"--reference: there is no column '{self.reference}'.", f"Columns: {', '.join(row)}.")
            item["external_reference"] = str(row[self.reference])
        given = {"max_tokens": self.max_tokens, "temperature": self.temperature}
        return item | {name: value for name, value in given.items() if value is not None}

    @staticmethod
    def _usual(row: input_files.Row) -> str:
        for column in ("prompt", input_files.LINE):
            if column in row:
                return f"{{{column}}}"
        columns = ", ".join(map(str, row))
        raise Failure(
            "--prompt is needed: there is no column 'prompt'.", f"Columns: {columns}. Write {{column}} in it."
        )


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """The options of the batch."""

    model: str | None
    window: str | None
    tags: tuple[str, ...]
    metadata: dict[str, str]
    key: str | None


def submit(
    file: File,
    model: Model = None,
    prompt: Template = None,
    system: System = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    reference: Reference = None,
    window: Window = None,
    tag: Tag = None,
    metadata: Metadata = None,
    idempotency_key: IdempotencyKey = None,
    form: Format = None,
    watch: Watch = False,
    as_json: Json = False,
) -> None:
    """Submit a file as a batch and print the batch's id."""
    prompts = Prompts(prompt, system, max_tokens, temperature, reference)
    options = SubmitOptions(model, window, tuple(tag or ()), pairs(metadata), checked_key(idempotency_key))
    with _as_path(file) as path, Client.of(settings()) as client:
        request_id = _send(client, path, _kind(file, path, form, prompts), prompts, options)
        batch = client.get(f"/ai/batches/{request_id}")
        warn_without_engine(batch)
        if not watch:
            _print_made(batch, as_json=as_json)
            return
        if not as_json:
            errors.print(f"batch {request_id}", highlight=False)
        found = progress_bar.watch(client, request_id)
        if as_json:
            tables.document(console, found)
    raise typer.Exit(progress_bar.exit_code(found))


def warn_without_engine(batch: dict[str, Any]) -> None:
    """Tell whoever submitted a batch that nothing runs it for now."""
    waiting = batch.get("waiting") or {}
    if waiting.get("code") == "no_engine":
        errors.print(f"Warning: {waiting['message']}.", soft_wrap=True, markup=False)


def _print_made(batch: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        tables.document(console, batch)
    else:
        tables.raw(console, batch["request_id"])


def _kind(file: Path, path: Path, form: str | None, prompts: Prompts) -> Kind:
    """The kind of the file. Tables on standard input look like prompts, so with a template --format is required."""
    if form is None and str(file) == "-" and prompts.template is not None:
        raise Failure(
            "--format is needed: standard input has no file name that shows its format.", "For example: --format csv."
        )
    return input_files.kind(path, form)


@contextmanager
def _as_path(file: Path) -> Iterator[Path]:
    """The file itself, or standard input copied into a temporary file for the block."""
    if str(file) != "-":
        yield file
        return
    with tempfile.NamedTemporaryFile(prefix=_COPY) as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield Path(copy.name)


def _named(path: Path) -> str:
    return "Standard input" if path.name.startswith(_COPY) else str(path)


def _send(client: Client, path: Path, kind: Kind, prompts: Prompts, options: SubmitOptions) -> str:
    """Submit and return the batch's id. Raises Failure."""
    if kind in ("items", "openai") and prompts != Prompts():
        raise Failure(
            f"{_named(path)} contains complete requests, each with its own options.",
            "Leave out --prompt, --system, --max-tokens, --temperature and --reference; `--format prompts` reads plain lines.",
        )
    if kind == "openai":
        return _send_requests(client, path, options)
    if kind == "items":
        if not path.stat().st_size:
            raise Failure(f"{_named(path)} is empty.", "It needs at least one request.")
        return _send_items(client, _blocks(path), path.stat().st_size, options)
    rows = input_files.rows(path, kind)
    if (first := next(rows, None)) is None:
        raise Failure(f"{_named(path)} has no prompts.", "It needs one at least, in a line or a row of its own.")
    lines = (orjson.dumps(prompts.item(row)) + b"\n" for row in chain([first], rows))
    return _send_items(client, lines, None, options)


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        if file.read(len(BOM_UTF8)) != BOM_UTF8:
            file.seek(0)
        while block := file.read(_BLOCK_BYTES):
            yield block


def _send_items(client: Client, lines: Iterator[bytes], size: int | None, options: SubmitOptions) -> str:
    """Submit NDJSON lines, streamed as they are produced. Returns the batch's id."""
    params: dict[str, Any] = {"queueRequest": "true", "completion_window": options.window}
    if options.tags:
        params["tags"] = ",".join(options.tags)
    headers = {"content-type": "application/x-ndjson"}
    if options.metadata:
        headers["cf-aig-metadata"] = json.dumps(options.metadata)  # ASCII, as a header must be
    if options.key:
        headers["idempotency-key"] = options.key
    path = f"/ai/run/{options.model or default_model(client)}"
    with progress_bar.uploading(lines, size) as content:
        result = client.call("POST", path, params=params, headers=headers, content=content)
    if client.warning:
        tables.sentence(errors, f"Warning: {client.warning}")
    return str(result["request_id"])


def _send_requests(client: Client, path: Path, options: SubmitOptions) -> str:
    """Upload a file and create a batch by OpenAI's routes. Raises Failure that lists the first wrong lines."""
    urls, models = set(), set()
    for row in input_files.rows(path, "openai"):
        body = row.get("body")
        urls.add(str(row.get("url")))
        models.add(str(body.get("model")) if isinstance(body, dict) else "")
    if not urls:
        raise Failure(f"{_named(path)} is empty.", "It needs at least one request.")
    if options.tags or options.model:
        raise Failure(
            "--tag and --model cannot be used with OpenAI requests.",
            "Each line names its model, and such batches have metadata in place of tags: --metadata KEY=VALUE.",
        )
    with path.open("rb") as file, tables.patience(f"Uploading {path.name} …"):
        upload = {"file": (path.name, file, "application/jsonl")}
        with client.stream("POST", "/v1/files", data={"purpose": "batch"}, files=upload) as response:
            file_id = response_json(response)["id"]
    body = {
        "input_file_id": file_id,
        "endpoint": min(urls),
        "completion_window": options.window or "background",
        "metadata": options.metadata or None,
        "mixed": len(urls) > 1 or len(models) > 1,
    }
    headers = {"idempotency-key": options.key} if options.key else {}
    with client.stream("POST", "/v1/batches", json=body, headers=headers) as response:
        batch = response_json(response)
    if batch["status"] == "failed":
        raise _refused(batch)
    return str(batch["id"])


def _refused(batch: dict[str, Any]) -> Failure:
    found = (batch.get("errors") or {}).get("data") or []
    lines = [f"line {each.get('line')}: {each.get('message')}" for each in found[:_SHOWN_ERRORS]]
    if len(found) > _SHOWN_ERRORS:
        lines.append(f"… and {len(found) - _SHOWN_ERRORS} more")
    return Failure(
        f"The batch was refused; none of its items runs.\n{chr(10).join(lines)}",
        "Correct the file and submit it again.",
    )


def default_model(client: Client) -> str:
    """The model of the engines, if all serve the same one. Raises Failure that lists the models."""
    with client.stream("GET", "/status") as response:
        models = sorted({engine["model"] for engine in response_json(response)["engines"] if engine.get("model")})
    if len(models) == 1:
        return str(models[0])
    known = f"Engines serve {', '.join(models)}." if models else "`slackwater model list` shows the catalogue."
    raise Failure("Name the model with --model.", known)
