"""Conversations: how fast each grows, how full its window is, and what a checkpoint has taken off. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app import places
from app.batches.id_prefix import id_range
from app.console.views import signs, text, times
from app.console.views.batch_filter import Chip, address
from app.console.views.plots import Bar, Meter
from app.console.views.signs import Sign
from app.errors import BadInput
from app.metering.slope import is_soon
from app.sessions.listing import Listed

PATH = "/console/conversations"
VIEWS = {"all": "All", "growing": "Growing", "busy": "In a turn"}
_NEAR = 0.8  # of the window


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a filter asks for."""

    parts: Sequence[tuple[str, str]] = ()
    account: str = ""
    id_range: tuple[UUID, UUID] | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read. `windows`: context windows by model."""

    rows: Sequence[Listed]
    more: bool
    wanted: Wanted
    windows: Mapping[str, int]


def parse(given: str) -> Wanted:
    """The filter of a text: `account:x`, and the start of an id. Raises BadInput."""
    parts, account, ids = [], "", None
    for word in given.split():
        name, colon, value = word.partition(":")
        if colon and name == "account" and value:
            account = value
            parts.append((name, value))
            continue
        ids = None if colon else id_range(word)
        if ids is None:
            raise BadInput(
                f"{word[:40]}: is no part of a filter; account:x, or the start of an id, at least four digits"
            )
        parts.append(("", word))
    return Wanted(parts, account, ids)


def view(seen: Seen, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of the page need."""
    chosen = params.get("view", "all")
    q = params.get("q", "")
    keep = {"view": chosen if chosen != "all" else ""}
    raws = [f"{name}:{value}" if name else value for name, value in seen.wanted.parts]
    return {
        "title": title(seen),
        "rest": _rest(seen),
        "views": [
            {
                "name": name,
                "href": address(PATH, view=key if key != "all" else "", q=q),
                "here": key == chosen,
                "count": "",
            }
            for key, name in VIEWS.items()
        ],
        "chips": [
            Chip(name or "begins", value, raw, address(PATH, **keep, q=" ".join([*raws[:n], *raws[n + 1 :]])))
            for n, ((name, value), raw) in enumerate(zip(seen.wanted.parts, raws, strict=True))
        ],
        "keep": [("view", chosen)] if chosen != "all" else [],
        "rows": [_row(each, seen.windows, now) for each in seen.rows],
        "pages": _pages(seen, params, keep, q),
        "is_filtered": bool(q),
        "clear": address(PATH, **keep),
        "chosen": chosen,
    }


def soon(seen: Listed, windows: Mapping[str, int]) -> bool:
    """Whether its window is full within a few turns."""
    return is_soon(seen.turns_left(windows.get(seen.model or "")))


def title(seen: Seen) -> str:
    """How many of the page will fill their window soon."""
    if not seen.rows:
        return "No conversation"
    full = sum(soon(each, seen.windows) for each in seen.rows)
    if not full:
        return "No conversation is about to fill its window"
    number = text.sentence(text.plural(full, "conversation"))
    return f"{number} will fill {'its' if full == 1 else 'their'} window soon"


def _rest(seen: Seen) -> str:
    if not seen.rows:
        return ""
    busy = sum(each.busy for each in seen.rows)
    folded = sum(each.has_summary for each in seen.rows)
    parts = [f"{text.plural(busy, 'turn')} {'runs' if busy == 1 else 'run'} now"] if busy else ["No turn runs now"]
    if folded:
        parts.append(f"a checkpoint has shortened {text.count(folded)}")
    return f"Of the {len(seen.rows)} on this page: {', '.join(parts).lower()}." if len(seen.rows) > 1 else ""


def standing(seen: Listed) -> tuple[Sign, str]:
    """Whether a turn runs or waits."""
    if seen.busy:
        return signs.RUNS, "In a turn"
    return (signs.WAITS, "A turn waits") if seen.waits else (signs.QUIET, "Idle")


def meter_of(seen: Listed, windows: Mapping[str, int]) -> tuple[Meter, str]:
    """How full the window is, drawn and in words."""
    share = seen.fill(windows.get(seen.model or ""))
    if share is None:
        return Meter("not known"), f"{text.compact(seen.tokens)} tokens" if seen.tokens else "no answer yet"
    words = f"{text.compact(seen.tokens)} tokens, {text.percent(min(share, 1.0))}{text.NBSP}%"
    kind = "warn" if share >= _NEAR or soon(seen, windows) else "up"
    return Meter(words, [Bar(kind, 0.0, round(100 * min(share, 1.0), 2))]), words


def slope_of(slope: float | None) -> str:
    """Tokens a turn with their sign; not known: a dash."""
    return "–" if slope is None else f"{slope:+,.0f}".replace("-", "−")


def checkpoint_of(seen: Listed) -> str:
    """What a checkpoint has done."""
    if seen.summarising:
        return "in the making"
    return f"up to turn {seen.base:,}" if seen.has_summary else "–"


def _row(seen: Listed, windows: Mapping[str, int], now: datetime) -> dict[str, Any]:
    sign, words = standing(seen)
    drawn, filled = meter_of(seen, windows)
    left = seen.turns_left(windows.get(seen.model or ""))
    return {
        "id": seen.public_id,
        "short": text.short(seen.session_id),
        "name": text.inert(seen.metadata.get("name", ""), 120)[0],
        "href": f"{PATH}/{seen.public_id}",
        "account": seen.account,
        "model": seen.model or "–",
        "turns": f"{seen.version:,}",
        "meter": drawn,
        "filled": filled,
        "slope": slope_of(seen.slope),
        "left": "–" if left is None else text.count(left),
        "soon": soon(seen, windows),
        "checkpoint": checkpoint_of(seen),
        "sign": sign,
        "words": words,
        "used_at": seen.used_at,
        "used": times.span((now - seen.used_at).total_seconds()),
    }


def _pages(seen: Seen, params: Mapping[str, str], keep: Mapping[str, str], q: str) -> dict[str, Any]:
    newer = older = ""
    back, ahead = params.get("before"), params.get("after")
    if seen.rows:
        first, last = seen.rows[0], seen.rows[-1]
        if seen.more or back:
            older = address(PATH, **keep, q=q, after=places.written(last.used_at, last.session_id))
        if ahead or (back and seen.more):
            newer = address(PATH, **keep, q=q, before=places.written(first.used_at, first.session_id))
    words = f"{text.plural(len(seen.rows), 'conversation')}, the last used first"
    return {"names": ("Used later", "Used earlier"), "words": words, "newer": newer, "older": older, "cli": ""}
