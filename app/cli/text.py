"""Texts of several commands: those from other systems, safe for the terminal, and where items are."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.text import Text

from app.queue import item_counts


def plain(value: object) -> Text:
    """The value as text without markup. Control characters are replaced, so that they cannot change the terminal."""
    shown = (char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in str(value))
    return Text("".join(shown), overflow="fold")


def done_of(answered: int, failed: int, total: str) -> str:
    """How many items have a result, and how many of these are errors: "3 of 40 items done, 1 of them failed"."""
    return f"{answered + failed:,} of {total} done" + (f", {failed:,} of them failed" if failed else "")


def money_wait(queue: Mapping[str, Any]) -> str:
    """How many batches of the status document's queue wait only for money; empty: none."""
    count = queue.get("waiting_for_money")
    return f"; {count:,} {'waits' if count == 1 else 'wait'} only for money of a budget" if count else ""


def places(counts: Mapping[str, Any], prefix: str = "") -> str:
    """Where the items without a result are, from the counts of a document of the API, whose names have this prefix."""
    at = counts.get(prefix + "returns_at")
    queued, claimed, in_engine = (counts.get(prefix + place, 0) for place in ("queued", "claimed", "in_engine"))
    return item_counts.words(queued, claimed, in_engine, datetime.fromisoformat(at) if at else None)
