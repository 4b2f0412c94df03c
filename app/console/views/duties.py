"""Duties: which of them are done, late or failing. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from app.access.roles import Viewer
from app.console.views import signs, text, times
from app.console.views.signs import Sign
from app.duties.standing import Standing

PATH = "/console/duties"


def view(seen: Sequence[Standing], viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of the page need."""
    sign, title = headline(seen)
    return {"sign": sign, "title": title, "rest": rest(seen), "duties": [_row(each, now) for each in seen]}


def headline(seen: Sequence[Standing]) -> tuple[Sign, str]:
    """Whether everything is done that has to be done now and then."""
    stuck, failing = (sum(map(bool, each)) for each in ([d.stuck for d in seen], [d.error for d in seen]))
    if stuck:
        return signs.BROKEN, f"{text.plural(stuck, 'duty', 'duties')} without success for a day"
    if failing:
        return signs.LOOK, f"{text.plural(failing, 'duty fails', 'duties fail')}"
    if not seen:
        return signs.WAITS, "No steward has led yet"
    return signs.DONE, "Every duty is done in time"


def rest(seen: Sequence[Standing]) -> str:
    """What happens next to those that fail."""
    if any(each.error for each in seen):
        return "One that fails stops no other, and is tried again within ten minutes."
    return "A maintenance worker does them when the leading steward asks for them."


def _row(stands: Standing, now: datetime) -> dict[str, Any]:
    sign = signs.BROKEN if stands.stuck else signs.LOOK if stands.error else signs.DONE
    if stands.succeeded_at is None and not stands.stuck and not stands.error:
        sign = signs.WAITS
    return {
        "name": stands.duty.name,
        "about": stands.duty.about,
        "sign": sign,
        "at": stands.succeeded_at,
        "done": times.clock_time(stands.succeeded_at, now),
        "took": times.span(None if stands.took_ms is None else stands.took_ms / 1000),
        "every": times.span(stands.duty.every_seconds),
        "due_at": stands.due_at,
        "due": times.clock_time(stands.due_at, now),
        "error": stands.error or "",
    }
