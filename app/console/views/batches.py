"""The list of batches: rows to words. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app import places
from app.batches.why_chain import Why
from app.console.queries import MOST_COUNTED, BatchRow
from app.console.saved_views import SavedView
from app.console.views import batch_filter, batch_state, text, times
from app.console.views.batch_filter import VIEWS, Wanted
from app.engines.catalogue import Catalogue

PATH = "/console/batches"
_FEW = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read. `open`: how many are open, at most MOST_COUNTED."""

    rows: Sequence[BatchRow]
    whys: Mapping[UUID, Why]
    more: bool
    open: int
    wanted: Wanted
    models: Catalogue


def view(seen: Seen, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of the page need."""
    chosen = params.get("view", "open")
    strong, rest = _sentences(seen, now)
    q = params.get("q", "")
    keep = {"view": chosen if chosen != "open" else ""}
    return {
        "title": title(seen.open),
        "strong": strong,
        "rest": rest,
        "views": [
            {
                "name": name,
                "href": batch_filter.address(PATH, view=key if key != "open" else "", q=q),
                "here": key == chosen,
                "count": _open_count(seen.open) if key == "open" else "",
            }
            for key, name in VIEWS.items()
        ],
        "chips": batch_filter.chips(seen.wanted, PATH, keep),
        "keep": [("view", chosen)] if chosen != "open" else [],
        "rows": [_row(row, seen, now) for row in seen.rows],
        "pages": _pages(seen, params, keep, q),
        "q": q,
        "is_filtered": bool(q),
        "clear": batch_filter.address(PATH, **keep),
        "chosen": chosen,
    }


def with_saved(saved: Sequence[SavedView], context: Mapping[str, Any]) -> dict[str, Any]:
    """The tabs with the saved views of a reader. `saved_here`: the name of the one that is shown."""
    here = next((each for each in saved if (each.view, each.q) == (context["chosen"], context["q"])), None)
    tabs = [
        {
            "name": each.name,
            "href": batch_filter.address(PATH, view="" if each.view == "open" else each.view, q=each.q),
            "here": each is here,
            "count": "",
        }
        for each in saved
    ]
    views = [tab | {"here": tab["here"] and here is None} for tab in context["views"]]
    return {"views": [*views, *tabs], "saved_here": here.name if here else ""}


def title(count: int) -> str:
    """How many batches are open."""
    if not count:
        return "No batch is open"
    return f"{_open_count(count)} {'batch is' if count == 1 else 'batches are'} open"


def _open_count(count: int) -> str:
    return f"{count:,}+" if count >= MOST_COUNTED else f"{count:,}"


def _sentences(seen: Seen, now: datetime) -> tuple[str, str]:
    """What is remarkable about the open batches of this page."""
    found = [
        (row, batch_state.standing(row, seen.whys.get(row.request_id), now))
        for row in seen.rows
        if row.finalized_at is None
    ]
    running = sum(standing.code == "running" for _, standing in found)
    late = [row for row, standing in found if standing.late]
    money = sum(standing.code == "budget" for _, standing in found)
    away = sum(standing.code in {"no_engine", "engine_down", "engine_starting"} for _, standing in found)
    strong = ""
    if late:
        end = batch_state.ending(late[0], seen.whys.get(late[0].request_id), now)
        others = f" and {few(len(late) - 1)} more" if len(late) > 1 else ""
        strong = f"{late[0].name}{others} will miss {'its' if not others else 'their'} deadline at this pace"
        strong += f" ({end.due})." if not others else "."
    parts = []
    if found:
        parts.append(f"{few(running)} {'runs' if running == 1 else 'run'}" if running else "none runs")
    if money:
        parts.append(f"{few(money)} {'waits' if money == 1 else 'wait'} for money")
    if away:
        parts.append(f"{few(away)} {'waits' if away == 1 else 'wait'} for an engine")
    return strong, text.sentence(", ".join(parts) + ".") if parts else ""


def few(number: int) -> str:
    """A small number in words."""
    return _FEW[number] if number < len(_FEW) else f"{number:,}"


def _row(row: BatchRow, seen: Seen, now: datetime) -> dict[str, Any]:
    why = seen.whys.get(row.request_id)
    ok, failed = batch_state.counts(row, why)
    drawn, words, wrong = batch_state.progress(row, why)
    spent = batch_state.costs(batch_state.live(row, why), seen.models)
    named = row.name != text.short(row.request_id)
    return {
        "name": row.name,
        "id": str(row.request_id),
        "sub": ([text.short(row.request_id)] if named else []) + list(row.tags)[:3],
        "href": f"{PATH}/{row.request_id}",
        "account": row.account,
        "model": row.model,
        "meter": drawn,
        "progress": words,
        "failed": wrong,
        "failed_bad": batch_state.many_failed(ok, failed),
        "standing": batch_state.standing(row, why, now),
        "ending": batch_state.ending(row, why, now),
        "cost": text.money(spent.so_far, spent.currency) if spent.so_far else "–",
        "whole": f"of {text.money(spent.whole, spent.currency)}" if spent.whole and row.finalized_at is None else "",
        "came": times.span((now - row.created_at).total_seconds()),
        "created_at": row.created_at,
        "paused": row.state == "paused",
    }


def _pages(seen: Seen, params: Mapping[str, str], keep: Mapping[str, str], q: str) -> dict[str, Any]:
    newer = older = ""
    back, ahead = params.get("before"), params.get("after")
    if seen.rows:
        first, last = seen.rows[0], seen.rows[-1]
        if seen.more or back:
            older = batch_filter.address(PATH, **keep, q=q, after=places.written(last.created_at, last.request_id))
        if ahead or (back and seen.more):
            newer = batch_filter.address(PATH, **keep, q=q, before=places.written(first.created_at, first.request_id))
    state = {"open": " --state queued --state running", "ended": " --state completed"}.get(
        params.get("view", "open"), ""
    )
    words = f"{text.plural(len(seen.rows), 'batch', 'batches')}, newest first"
    return {"names": (), "words": words, "newer": newer, "older": older, "cli": f"slackwater batch list{state}"}
