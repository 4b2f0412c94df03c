"""`slackwater shadow`: the same file to Slackwater and to another batch API, and what both made of it side by side."""

import json
import os
import shlex
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from app.cli import credentials, input_files, tables
from app.cli.batch_api import ENDED, BatchApi
from app.cli.options import Json, console, errors, settings
from app.cli.shadow_answers import Answer, Pair, PerMillion, Side, pairs, same
from app.quantities import duration, many
from app.user_errors import Failure

_OPENAI = "https://api.openai.com/v1"
_SHOWN = 5
_CUT = 300  # characters of an answer in the table
_PAUSES_SECONDS = (1.0, 30.0)

File = Annotated[Path, typer.Argument(help="requests in OpenAI's batch format, one per line")]
Beside = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help=f"the other API; default: OPENAI_BASE_URL, else {_OPENAI}. Its key: OPENAI_API_KEY"
    ),
]
Model = Annotated[str | None, typer.Option("--model", "-m", help="the model here, in place of the one that lines name")]
Price = Annotated[
    str | None, typer.Option(metavar="IN,OUT", help="price there, in USD per million tokens, as 0.15,0.60")
]
Here = Annotated[str | None, typer.Option(metavar="BATCH", help="do not submit here: this batch has the answers")]
There = Annotated[str | None, typer.Option(metavar="BATCH", help="do not submit there: this batch has the answers")]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="write both answers to every request, as NDJSON")]


def shadow(
    file: File,
    beside: Beside = None,
    model: Model = None,
    price: Price = None,
    here: Here = None,
    there: There = None,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Send a file to Slackwater and to another batch API, and show answers, time and cost of both side by side."""
    wanted = _price(price)
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise Failure(f"-o: {output} cannot be written.", "Name a file in a folder that there is.")
    ids, endpoint = _requests(file)
    with _sides(beside) as (ours, other):
        if here is None:
            other.check()
            here = _submit_here(ours, file, model, endpoint)
        if there is None:
            try:
                there = other.submit(file, endpoint)
            except Failure:
                ours.cancel(here)
                raise
        try:
            ended = _until_ended({ours: here, other: there})
        except KeyboardInterrupt:
            again = f"slackwater shadow {shlex.quote(str(file))} --beside {other.url} --here {here} --there {there}"
            raise Failure("Both batches go on.", f"To see their answers later: {again}") from None
        left = Side("here", ended[ours]).take(ours.lines(ended[ours]))
        right = Side(other.name, ended[other], price=wanted).take(other.lines(ended[other]))
    found = pairs(ids, left, right)
    if output is not None:
        output.write_text("".join(f"{json.dumps(_line(pair, left, right))}\n" for pair in found))
    if as_json:
        tables.document(console, _document(found, left, right))
    else:
        _show(found, left, right, output)
    raise typer.Exit(int(any(side.batch["status"] != "completed" for side in (left, right))))


def _price(given: str | None) -> PerMillion | None:
    if given is None:
        return None
    try:
        prompt, output = (Decimal(part) for part in given.split(","))
        if not (0 <= prompt < Decimal("Infinity") and 0 <= output < Decimal("Infinity")):
            raise ValueError(given)
    except (InvalidOperation, ValueError):
        raise Failure(f"--price: must be two numbers with a comma between, as 0.15,0.60, got '{given}'") from None
    return PerMillion(prompt, output)


def _requests(file: Path) -> tuple[list[str], str]:
    """The ids of the requests, and the endpoint of all. Raises Failure that names the line."""
    if input_files.kind(file, None) != "openai":
        raise Failure(f"{file} is not in OpenAI's batch format.", 'A line is {"custom_id", "method", "url", "body"}.')
    ids, endpoint = [], ""
    for number, line in enumerate(input_files.rows(file, "openai"), 1):
        if not line.get("custom_id") or not isinstance(line.get("body"), dict):
            raise Failure(f"{file}, request {number}: has no custom_id or no body.", "Both name what is compared.")
        ids.append(str(line["custom_id"]))
        if endpoint not in ("", line.get("url")):
            raise Failure(f"{file}, request {number}: its url is not {endpoint}.", "Make a file for each url.")
        endpoint = str(line.get("url"))
    return ids, endpoint


@contextmanager
def _sides(beside: str | None) -> Iterator[tuple[BatchApi, BatchApi]]:
    url, key = credentials.find(settings())
    other = beside or os.environ.get("OPENAI_BASE_URL") or _OPENAI
    if not (theirs := os.environ.get("OPENAI_API_KEY", "")):
        raise Failure(f"There is no key for {other}.", "Set OPENAI_API_KEY.")
    with ExitStack() as stack:
        ours = stack.enter_context(BatchApi(f"{url}/v1", key))
        yield ours, stack.enter_context(BatchApi(other, theirs))


@contextmanager
def _with_model(file: Path, model: str | None) -> Iterator[Path]:
    """The file, in which every request names this model."""
    if model is None:
        yield file
        return
    with tempfile.TemporaryDirectory() as folder:
        changed = Path(folder) / file.name
        with changed.open("wb") as lines:
            for line in input_files.rows(file, "openai"):
                lines.write(orjson.dumps({**line, "body": {**line["body"], "model": model}}) + b"\n")
        yield changed


def _submit_here(ours: BatchApi, file: Path, model: str | None, endpoint: str) -> str:
    """Submit here first, where the file is checked at once: one that is refused costs nothing there. Raises Failure."""
    with _with_model(file, model) as changed:
        batch_id = ours.submit(changed, endpoint)
    found = ours.batch(batch_id)
    listed = (found.get("errors") or {}).get("data") or []
    if found["status"] == "failed" and listed:
        first = listed[0]
        place = f"line {first['line']}: " if first.get("line") else ""
        more = f" (and {len(listed) - 1} more)" if len(listed) > 1 else ""
        problem = f"Refused here, and not sent to the other. {place}{first['message']}{more}"
        raise Failure(problem, "Correct the file, or name a model of this installation: --model.")
    return batch_id


def _until_ended(batches: dict[BatchApi, str]) -> dict[BatchApi, dict[str, Any]]:
    """Wait for both, and say how far they are when that changes."""
    found, told, pause = dict[BatchApi, dict[str, Any]](), "", _PAUSES_SECONDS[0]
    while True:
        found |= {
            api: api.batch(batch_id)
            for api, batch_id in batches.items()
            if api not in found or found[api]["status"] not in ENDED
        }
        state = "; ".join(f"{api.name}: {_progress(batch)}" for api, batch in found.items())
        if state != told:
            errors.print(state, markup=False, highlight=False, soft_wrap=True)
            told, pause = state, _PAUSES_SECONDS[0]
        if all(batch["status"] in ENDED for batch in found.values()):
            return found
        time.sleep(pause)
        pause = min(1.5 * pause, _PAUSES_SECONDS[1])


def _progress(batch: dict[str, Any]) -> str:
    counts = batch.get("request_counts") or {}
    done = (counts.get("completed") or 0) + (counts.get("failed") or 0)
    return f"{batch['status']} {done}/{counts.get('total') or '?'}"


def _show(found: list[Pair], here: Side, there: Side, output: Path | None) -> None:
    both = [pair for pair in found if pair[1] and pair[2] and not (pair[1].error or pair[2].error)]
    rows: list[tuple[str, object, object]] = [
        ("batch", here.batch["id"], there.batch["id"]),
        ("ended as", here.batch["status"], there.batch["status"]),
        ("answered", f"{here.answered} of {len(found)}", f"{there.answered} of {len(found)}"),
        ("time", _time(here), _time(there)),
        ("tokens of prompts", f"{here.prompt_tokens:,}", f"{there.prompt_tokens:,}"),
        ("tokens of answers", f"{here.output_tokens:,}", f"{there.output_tokens:,}"),
        ("cost", _money(here), _money(there)),
    ]
    tables.show(console, ("", "here", there.name), rows)
    alike = sum(map(same, both))
    tables.sentence(console, f"\n{many(alike, 'answer')} of {len(both)} that both gave are the same, word by word.")
    shown = found[:_SHOWN]
    tables.show(console, ("request", "here", there.name), [(each, _cell(a), _cell(b)) for each, a, b in shown])
    rest = f"All of them are in {output}." if output else "-o FILE writes all of them."
    if len(found) > len(shown):
        tables.sentence(console, f"{len(shown)} of {len(found)} requests, those that differ first. {rest}", "dim")


def _time(side: Side) -> str | None:
    return None if side.seconds is None else duration(side.seconds)


def _money(side: Side) -> str | None:
    return None if side.cost is None else f"{side.cost[0]:.6f} {side.cost[1]}"


def _cell(answer: Answer | None) -> str | None:
    if answer is None:
        return None
    text = f"(failed: {answer.error})" if answer.error else " ".join(answer.text.split())
    return text if len(text) <= _CUT else f"{text[: _CUT - 1]}…"


def _line(pair: Pair, here: Side, there: Side) -> dict[str, Any]:
    each, ours, theirs = pair
    given = {"here": ours, there.name: theirs}
    return {"custom_id": each, "same": same(pair)} | {
        name: None if answer is None else {"answer": answer.text} if not answer.error else {"error": answer.error}
        for name, answer in given.items()
    }


def _document(found: list[Pair], here: Side, there: Side) -> dict[str, Any]:
    sides = {"here": here, there.name: there}
    return {"requests": len(found), "same": sum(map(same, found))} | {
        name: {
            "batch": side.batch["id"],
            "status": side.batch["status"],
            "answered": side.answered,
            "seconds": side.seconds,
            "prompt_tokens": side.prompt_tokens,
            "completion_tokens": side.output_tokens,
            "cost": None if side.cost is None else float(side.cost[0]),
            "currency": None if side.cost is None else side.cost[1],
        }
        for name, side in sides.items()
    }
