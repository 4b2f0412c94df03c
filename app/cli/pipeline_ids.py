"""Resolves a pipeline's id on the command line, which may be abbreviated to its first digits."""

from collections.abc import Iterator
from typing import Any

from app.cli.batch_ids import beginning, several
from app.cli.client import Client, response_json
from app.cli.tables import patience
from app.user_errors import Failure

PREFIX, URL = "pipe_", "/v1/pipelines"
MOST_SEARCHED, _PAGE, _LEAST, _DIGITS = 1000, 100, 8, 32
_REMEDY = "`slackwater pipeline list` shows the ids."


def call(client: Client, method: str, path: str = "", **options: Any) -> dict[str, Any]:
    """The answer of a route of pipelines. Raises Failure."""
    with client.stream(method, URL + path, **options) as response:
        return response_json(response)


def newest(client: Client, most: int) -> Iterator[dict[str, Any]]:
    """The newest pipelines, at most `most`. Raises Failure."""
    after = None
    while most > 0:
        page = call(client, "GET", params={"limit": min(most, _PAGE), "after": after})
        yield from page["data"]
        most, after = most - len(page["data"]), page["last_id"]
        if not page["has_more"]:
            return


def resolve(client: Client, text: str) -> str:
    """The id of the pipeline that `text` names: `pipe_…`, or the first 8 or more digits of it. Raises Failure."""
    digits = text.strip().lower().removeprefix(PREFIX).replace("-", "")
    if len(digits) < _LEAST or set(digits) - set("0123456789abcdef"):
        raise Failure(
            f"{text} is not the id of a pipeline.", f"Give pipe_…, or at least the first {_LEAST} digits. {_REMEDY}"
        )
    if len(digits) >= _DIGITS:
        return PREFIX + digits[:_DIGITS]
    with patience(f"Looking for the pipeline {text} …"):
        known = (each["id"].removeprefix(PREFIX) for each in newest(client, MOST_SEARCHED))
        found = beginning(digits, known)
    if not found:
        raise Failure(f"No pipeline among the newest {MOST_SEARCHED:,} begins with {text}.", _REMEDY)
    if len(found) > 1:
        raise several("pipelines", text, [PREFIX + each for each in found])
    return PREFIX + found[0]
