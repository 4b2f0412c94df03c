"""The list of pipelines: rows to words. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.console.views import batch_state, pipeline_filter, pipeline_state, signs, text, times
from app.console.views.batch_filter import address
from app.console.views.batches import few
from app.console.views.pipeline_filter import PATH, VIEWS, Wanted
from app.console.views.plots import meter
from app.flows.stages import INPUT
from app.pipelines.listing import MOST_COUNTED, Listed, Step


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read. `open`: how many are open, at most MOST_COUNTED."""

    rows: Sequence[Listed]
    more: bool
    open: int
    wanted: Wanted


def view(seen: Seen, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of the page need."""
    chosen = params.get("view", "open")
    q = params.get("q", "")
    keep = {"view": chosen if chosen != "open" else ""}
    return {
        "title": title(seen.open),
        "rest": _sentence(seen),
        "views": [
            {
                "name": name,
                "href": address(PATH, view=key if key != "open" else "", q=q),
                "here": key == chosen,
                "count": _count(seen.open) if key == "open" else "",
            }
            for key, name in VIEWS.items()
        ],
        "chips": pipeline_filter.chips(seen.wanted, keep),
        "keep": [("view", chosen)] if chosen != "open" else [],
        "rows": [_row(row, now) for row in seen.rows],
        "pages": _pages(seen, params, keep, q),
        "is_filtered": bool(q),
        "clear": address(PATH, **keep),
        "chosen": chosen,
    }


def title(count: int) -> str:
    """How many pipelines are open."""
    if not count:
        return "No pipeline is open"
    return f"{_count(count)} {'pipeline is' if count == 1 else 'pipelines are'} open"


def _count(count: int) -> str:
    return f"{count:,}+" if count >= MOST_COUNTED else f"{count:,}"


def _sentence(seen: Seen) -> str:
    """What holds the open pipelines of this page."""
    held: dict[str, int] = {}
    for each in seen.rows:
        if each.row.state == "paused":
            words = pipeline_state.paused(each.row).sub
            held[words] = held.get(words, 0) + 1
    return " ".join(
        f"{text.sentence(few(number))} {'is' if number == 1 else 'are'} paused: {words}."
        for words, number in held.items()
    )


def _row(seen: Listed, now: datetime) -> dict[str, Any]:
    row, sums, spent = seen.row, seen.sums, seen.spent
    done = sums.ok + sums.failed
    more = any(step.fed and not step.final for step in seen.steps)
    limit, currency = pipeline_state.budget(row, spent)
    words = f"{done:,} of {sums.total:,}{' so far' if more else ''}" if sums.total else "no item yet"
    return {
        "id": row.public_id,
        "name": pipeline_state.name_of(row),
        "short": text.short(row.request_id),
        "href": f"{PATH}/{row.public_id}",
        "account": seen.account,
        "steps": [_step(step) for step in seen.steps if step.n != INPUT or step.runs],
        "meter": meter(f"{pipeline_state.name_of(row)}: {words}", sums.total, ("ok", sums.ok), ("bad", sums.failed)),
        "progress": words,
        "failed": f"{sums.failed:,} failed" if sums.failed else "",
        "failed_bad": batch_state.many_failed(sums.ok, sums.failed),
        "standing": pipeline_state.listed(seen, now),
        "cost": text.money(spent.amount, currency) if spent and spent.amount else "–",
        "budget": f"of {text.money(limit, currency)}" if limit is not None else "",
        "due": times.clock_time(row.expires_at, now) if row.expires_at and row.finalized_at is None else "–",
        "came": times.span((now - row.created_at).total_seconds()),
        "created_at": row.created_at,
    }


def _step(step: Step) -> dict[str, Any]:
    """One stage in the small flow of a row."""
    left = step.total - step.ok - step.failed
    if step.final:
        sign, words = (signs.BROKEN, "ended, all failed") if step.failed and not step.ok else (signs.ENDED, "ended")
    elif left:
        sign, words = signs.RUNS, f"{left:,} to do"
    else:
        sign, words = signs.WAITS, "nothing to do yet"
    return {"name": step.name, "sign": sign, "words": words}


def _pages(seen: Seen, params: Mapping[str, str], keep: Mapping[str, str], q: str) -> dict[str, Any]:
    newer = older = ""
    back, ahead = params.get("before"), params.get("after")
    if seen.rows:
        if seen.more or back:
            older = address(PATH, **keep, q=q, after=seen.rows[-1].row.public_id)
        if ahead or (back and seen.more):
            newer = address(PATH, **keep, q=q, before=seen.rows[0].row.public_id)
    words = f"{text.plural(len(seen.rows), 'pipeline')}, newest first"
    return {"names": (), "words": words, "newer": newer, "older": older, "cli": "slackwater pipeline list"}
