"""Resolves a batch id on the command line, which may be abbreviated to its first digits."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from app.cli.client import Client
from app.cli.tables import patience
from app.user_errors import Failure

PAGE = 100  # batches in one answer of the API
MOST_SEARCHED = 10_000
_PREFIX = "batch_"
_ID = re.compile(r"[0-9a-f]{8,32}")
_DIGITS = 32
_SHOWN = 5
_REMEDY = "`slackwater batch list` shows the ids."


def newest(client: Client, most: int, **filters: Any) -> Iterator[dict[str, Any]]:
    """The newest batches, at most `most`, that match the filters of `GET …/ai/batches`. Raises Failure."""
    after = filters.pop("after", None)
    while most > 0:
        page = client.page("/ai/batches", limit=min(most, PAGE), after=after, **filters)
        yield from page.rows
        most, after = most - len(page.rows), page.cursor
        if not after or not page.rows:
            return


def resolve(client: Client, text: str) -> str:
    """The id of the batch that `text` names: a UUID, `batch_…`, or the first 8 or more digits of either.

    An abbreviated id is searched among the newest `MOST_SEARCHED` batches. Raises Failure unless exactly one matches.
    """
    digits = text.strip().lower().removeprefix(_PREFIX).replace("-", "")
    if not _ID.fullmatch(digits):
        remedy = f"Give the UUID, batch_…, or at least the first 8 digits. {_REMEDY}"
        raise Failure(f"{text} is not the id of a batch.", remedy)
    if len(digits) == _DIGITS:
        return str(UUID(digits))
    with patience(f"Looking for the batch {text} …"):
        found = beginning(digits, (batch["request_id"] for batch in newest(client, MOST_SEARCHED)))
    if not found:
        raise Failure(f"No batch among the newest {MOST_SEARCHED:,} begins with {text}.", _REMEDY)
    if len(found) > 1:
        raise several("batches", text, found)
    return found[0]


def several(what: str, text: str, found: Sequence[str]) -> Failure:
    """The error that these ids all begin with `text`. `what`: they are of."""
    more = "" if len(found) <= _SHOWN else f" and {len(found) - _SHOWN} more"
    return Failure(f"{len(found)} {what} begin with {text}: {', '.join(found[:_SHOWN])}{more}.", "Give more digits.")


def beginning(digits: str, ids: Iterable[str]) -> list[str]:
    """The ids that start with these digits. Pure."""
    return [each for each in ids if each.replace("-", "").startswith(digits)]
