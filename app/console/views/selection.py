"""Several batches at once: what an action will do to each of the selected ones, and which it leaves alone. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.console.queries import BatchRow
from app.console.views import batch_actions, batch_filter, batch_state, text
from app.console.views.batches import PATH

MOST_AT_ONCE = 200  # one statement reads them in a few milliseconds; the rest can be selected after them
ADDRESS = f"{PATH}/selected"
_CONSEQUENCES = {
    "pause": "No further item of them starts. What is done keeps its results. Their deadlines stay.",
    "resume": "Their items run again as there is room.",
    "cancel": "What was not done will not run. Results stay. A retry can run the rest later.",
    "retry": "A new run of each begins with the items that have no answer: failed, cancelled or expired.",
}
VERBS = tuple(_CONSEQUENCES)


@dataclass(frozen=True, slots=True)
class Refused:
    """A batch that did not change, and why."""

    row: BatchRow
    reason: str


def able(verb: str, rows: Sequence[BatchRow]) -> list[BatchRow]:
    """The batches to which the action can be done."""
    return [row for row in rows if not batch_actions.obstacle(verb, row)]


def view(verb: str, rows: Sequence[BatchRow], *, more: bool, back: str) -> dict[str, Any]:
    """What the confirmation needs. `more`: other batches match too, beyond MOST_AT_ONCE. `back`: the address of the list."""
    acted = able(verb, rows)
    left = [row for row in rows if row not in acted]
    return {
        "verb": verb,
        "title": f"{_name(verb)} {text.plural(len(acted), 'batch', 'batches')}?" if acted else "None of them changes",
        "words": _CONSEQUENCES[verb] if acted else "",
        "confirm": f"{_name(verb)} {text.plural(len(acted), 'batch', 'batches')}",
        "danger": verb == "cancel",
        "rows": [_acted(verb, row) for row in acted],
        "left": [_left(row, batch_actions.obstacle(verb, row)) for row in left],
        "cli": "\n".join(f"slackwater batch {verb} {text.short(row.request_id)}" for row in acted),
        "more": f"These are the first {MOST_AT_ONCE:,} that match. Repeat this for the rest." if more else "",
        "back": back,
        "address": ADDRESS,
    }


def outcome(verb: str, changed: int, refused: Sequence[Refused], back: str) -> dict[str, Any]:
    """What the page needs that says which batches did not change."""
    return {
        "title": f"{text.plural(len(refused), 'batch', 'batches')} did not change",
        "words": f"{text.plural(changed, 'batch', 'batches')} did. The audit log has each of them.",
        "rows": [],
        "left": [_left(each.row, each.reason) for each in refused],
        "more": "",
        "back": back,
        "verb": verb,
    }


def back_to(chosen: str, q: str) -> str:
    """The address of the list from which somebody came."""
    return batch_filter.address(PATH, view="" if chosen == "open" else chosen, q=q)


def _name(verb: str) -> str:
    return "Retry what failed of" if verb == "retry" else verb.capitalize()


def _acted(verb: str, row: BatchRow) -> dict[str, Any]:
    ok, failed = batch_state.counts(row, None)
    items = row.total - ok if verb == "retry" else row.total - ok - failed
    rest = "without an answer" if verb == "retry" else "not done"
    return _named(row) | {
        "items": f"{text.plural(items, 'item')} {rest}",
        "value": f"{row.request_id}.{row.run}",
    }


def _left(row: BatchRow, reason: str) -> dict[str, Any]:
    return _named(row) | {"reason": text.sentence(reason)}


def _named(row: BatchRow) -> dict[str, Any]:
    return {
        "name": text.inert(row.name, 200)[0],
        "id": text.short(row.request_id),
        "href": f"{PATH}/{row.request_id}",
        "account": row.account,
        "state": str(row.state),
    }
