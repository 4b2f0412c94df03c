"""The items of a batch as a list by outcome, and its failures by class. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.access.roles import Viewer
from app.console.queries import BatchRow
from app.console.queries_items import ITEM_ROWS, ItemPage
from app.console.views import batch_filter, plots, signs, text, times
from app.engines.outcome import meaning
from app.queue.failures import FailureClass
from app.queue.items import ItemFacts
from app.tracing.sampling import SLOW_FACTOR

_TABS = {"all": "All", "answered": "Answered", "failed": "Failed", "retried": "Tried again", "slow": "Slow"}
_NOTHING = {
    "all": "There is no item here.",
    "answered": "No item has an answer yet.",
    "failed": "No item has failed.",
    "retried": "No item was tried again or made way for callers.",
}
_MESSAGE_CHARACTERS = 200


def view(
    row: BatchRow, counts: tuple[int, int], page: ItemPage, params: Mapping[str, str], viewer: Viewer
) -> dict[str, Any]:
    """The list of items: its tabs, its rows, and where it goes on."""
    path = f"/console/batches/{row.request_id}"
    ok, failed = counts
    numbers = {"all": row.total, "answered": ok, "failed": failed}
    shown, more = page.items[:ITEM_ROWS], len(page.items) > ITEM_ROWS
    next_from = shown[-1].seq + 1 if more else None if page.looked_to is None else page.looked_to + 1
    older = ""
    if next_from is not None:
        older = batch_filter.address(path, items=page.kind, **{"from": str(next_from)}) + "#items"
    newer = batch_filter.address(path, items=page.kind) + "#items" if params.get("from") else ""
    return {
        "tabs": [
            {
                "name": name,
                "href": batch_filter.address(path, items=key) + "#items",
                "here": key == page.kind,
                "count": f"{numbers[key]:,}" if key in numbers else "",
            }
            for key, name in _TABS.items()
        ],
        "items": [_item(item, row, viewer) for item in shown],
        "kind": page.kind,
        "nothing": _nothing(page),
        "timed": any(item.ran_ms is not None for item in shown),
        "total": f"{row.total:,}",
        "pages": {
            "words": _pages_words(page, len(shown), numbers),
            "older": older,
            "newer": newer,
            "names": ("From the begin", "Next"),
            "cli": f"slackwater results {text.short(row.request_id)}" + (" --errors" if page.kind == "failed" else ""),
        },
    }


def _pages_words(page: ItemPage, shown: int, numbers: Mapping[str, int]) -> str:
    if page.kind in numbers:
        return f"{shown:,} of {numbers[page.kind]:,}"
    found = "tried again" if page.kind == "retried" else "slow"
    if page.slow_ms:
        found += f", {times.span(page.slow_ms / 1000)} or longer"
    return f"{shown:,} {found}" + (f"; looked at until item {page.looked_to:,}" if page.looked_to is not None else "")


def _nothing(page: ItemPage) -> str:
    """Why there is no row."""
    if page.looked_to is not None:
        return f"There is none until item {page.looked_to:,}; Next looks further."
    if page.kind == "slow":
        slow = f"{SLOW_FACTOR:g} times as long as usual, {times.span(page.slow_ms / 1000)}" if page.slow_ms else ""
        return f"No item took {slow}." if slow else "It is not known yet how long an item usually takes."
    return _NOTHING[page.kind]


def _item(item: ItemFacts, row: BatchRow, viewer: Viewer) -> dict[str, Any]:
    sign, words, code = outcome(item, row, viewer)
    cached = f"({item.cached_tokens:,})" if item.cached_tokens else ""
    return {
        "seq": item.seq,
        "href": f"/console/batches/{row.request_id}/items/{item.seq}",
        "reference": text.inert(item.reference or "", 200)[0],
        "sign": sign,
        "words": words,
        "code": code,
        "prompt": text.count(item.prompt_tokens) if item.ok is not None else "–",
        "cached": cached,
        "answer": text.count(item.completion_tokens) if item.completion_tokens else "–",
        "ran": times.span(item.ran_ms / 1000) if item.ran_ms is not None else "–",
        "tries": item.attempt or 1 if item.ok is not None else "–",
        "ended": times.seconds_time(item.finished_at),
        "finished_at": item.finished_at,
    }


def outcome(item: ItemFacts, row: BatchRow, viewer: Viewer) -> tuple[signs.Sign, str, str]:
    """What became of an item: sign, words, and the code of its error."""
    if item.ok:
        return signs.DONE, "answered", ""
    if item.ok is False:
        return signs.BROKEN, message(item.code or 0, item.message or "", viewer), item.error or "failed"
    if row.is_input:
        return signs.ENDED, "stored", ""
    if row.finalized_at is not None:
        return signs.QUIET, "did not run", ""
    return (signs.RUNS, "with a worker", "") if item.leased else (signs.WAITS, "waits", "")


def errors(found: Sequence[FailureClass], viewer: Viewer) -> list[dict[str, Any]]:
    """The failures by class, the most frequent first. Only who may see prompts sees a message, which may quote one."""
    most = max((each.count for each in found), default=1)
    return [
        {
            "count": f"{each.count:,}",
            "meter": plots.meter(f"{each.count:,}", most, ("bad", each.count)),
            "code": each.error,
            "words": message(each.code or 0, each.message or "", viewer),
            "href": f"/console/batches?view=all&q=error:{each.error}",
        }
        for each in found
    ]


def message(code: int, words: str, viewer: Viewer) -> str:
    """An error in words: as the engine or the checks said it, or in general for a role that sees no bodies."""
    if not viewer.role.reveals:
        return meaning(code)
    shown, _ = text.inert(words, 4 * _MESSAGE_CHARACTERS)
    return shown[:_MESSAGE_CHARACTERS] + ("…" if len(shown) > _MESSAGE_CHARACTERS else "")
