"""All webhooks and queues: are events accepted, and what waits. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from app import places
from app.access.roles import Viewer
from app.console.queries_webhooks import MOST_COUNTED, HookRow, Summary
from app.console.views import batch_filter, signs, text, times
from app.console.views.batches import few
from app.console.views.signs import Sign
from app.sentences import ended
from app.states import DeliveryState, EndpointState
from app.webhooks.endpoint_records import origin

PATH = "/console/webhooks"
VIEWS = {"all": "All", "failing": "Failing", "stopped": "Paused or disabled", "queues": "Queues"}
_STRIP = {
    DeliveryState.DELIVERED: ("m-ok", "accepted"),
    DeliveryState.PENDING: ("m-run", "waits to be sent"),
    DeliveryState.HELD: ("m-run", "held"),
    DeliveryState.SENDING: ("m-run", "is being sent"),
    DeliveryState.DEAD: ("m-bad", "given up"),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read."""

    rows: Sequence[HookRow]
    more: bool
    summary: Summary


@dataclass(frozen=True, slots=True)
class Health:
    """How an endpoint does. `sub`: since when, and what comes next."""

    sign: Sign
    words: str
    sub: str = ""


def view(seen: Seen, viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of the page need."""
    chosen, account = params.get("view", "all"), params.get("q", "")
    keep = {"view": chosen if chosen != "all" else ""}
    return {
        "title": title(seen.summary),
        "sign": _worst(seen.summary),
        "rest": rest(seen, now),
        "tabs": [
            {"name": name, "href": batch_filter.address(PATH, view=key if key != "all" else "", q=account), "here": key == chosen,
             "count": ""}
            for key, name in VIEWS.items()
        ],
        "chips": [{"name": "account", "value": account, "raw": account, "without": batch_filter.address(PATH, **keep)}]
        if account else [],
        "keep": [(name, value) for name, value in keep.items() if value],
        "rows": [_row(row, now) for row in seen.rows],
        "one_account": bool(viewer.account),
        "makes": viewer.role.reveals,
        "is_filtered": bool(account or chosen != "all"),
        "clear": PATH,
        "legend": [("ok", "accepted"), ("run", "waits or is held"), ("bad", "given up")],
        "pages": _pages(seen, params, keep, account),
    }  # fmt: skip


def title(found: Summary) -> str:
    """Whether events are accepted."""
    if not found.known:
        return "No webhook has been made"
    bad = found.disabled + found.failing
    if not bad:
        return "All webhooks accept their events" if found.known > 1 else "The webhook accepts its events"
    all_of = "The webhook" if found.known == 1 else f"{text.sentence(few(bad))} of {few(found.known)} webhooks"
    if not found.failing:
        return f"{all_of} {'is' if bad == 1 else 'are'} disabled"
    return f"{all_of} {'does not accept its' if bad == 1 else 'do not accept their'} events"


def _worst(found: Summary) -> Sign:
    if found.disabled:
        return signs.BROKEN
    return signs.LOOK if found.failing else signs.DONE if found.known else signs.QUIET


def rest(seen: Seen, now: datetime) -> str:
    """Those of this page that fail, at most two, and what waits."""
    said = []
    names = [row.name for row in seen.rows]
    for row in sorted(seen.rows, key=lambda row: row.state != EndpointState.DISABLED):
        if row.state == EndpointState.DISABLED or row.failing_since:
            state, name = health(row, now), text.inert(row.name, 80)[0]
            if names.count(row.name) > 1:
                name = f"{name} ({destination(row)})"
            said.append(ended(f"{name}: {state.words[0].lower()}{state.words[1:]}"))
    waiting = sum(row.pending for row in seen.rows)
    if waiting:
        more = "+" if any(row.pending >= MOST_COUNTED for row in seen.rows) else ""
        said = [*said[:2], f"{waiting:,}{more} {'event waits' if waiting == 1 else 'events wait'} to be sent."]
    return " ".join(said[:3]) or ("Nothing waits to be sent." if seen.rows else "")


def health(row: HookRow, now: datetime) -> Health:
    """The state of an endpoint in words."""
    if row.state == EndpointState.DISABLED:
        return Health(signs.BROKEN, "Disabled", text.inert(row.reason or "", 300)[0])
    if row.state == EndpointState.PAUSED:
        return Health(signs.PAUSED, "Paused", "its events wait")
    if row.failing_since:
        return _failing(row, now)
    if row.state == EndpointState.PENDING:
        return Health(signs.WAITS, "Has to accept a test event first", "its events are held")
    if row.queue_id:
        return Health(signs.DONE, "Events wait to be fetched" if row.pending else "Every event was fetched")
    return Health(signs.DONE, "Accepts its events")


def _failing(row: HookRow, now: datetime) -> Health:
    failures, since = text.plural(row.failures, "failure"), times.clock_time(row.failing_since, now)
    if row.open_until and row.open_until > now:
        words = f"Nothing is sent until {times.clock_time(row.open_until, now)}"
        return Health(signs.LOOK, words, f"{failures} in a row, since {since}")
    return Health(signs.LOOK, f"Fails since {since}", f"{failures} in a row")


def destination(row: HookRow) -> str:
    """Where the events go, without what may be a secret in the address."""
    if row.url is None:
        return f"queue {text.inert(row.queue_id or '', 200)[0]}"
    place = urlsplit(row.url)
    rest = place.path.strip("/") or place.query
    return text.inert(origin(row.url).partition("://")[2] + ("/…" if rest else ""), 300)[0]


def counted(number: int) -> str:
    """A count that stops at MOST_COUNTED."""
    return f"{number}+" if number >= MOST_COUNTED else f"{number}" if number else "–"


def strip(row: HookRow) -> list[tuple[str, str]]:
    """The latest deliveries, from old to new."""
    return [_STRIP.get(DeliveryState(state), ("m-run", state)) for state in reversed(row.latest)]


def strip_words(row: HookRow) -> str:
    """The same in words."""
    if not row.latest:
        return "no delivery yet"
    accepted = sum(state == DeliveryState.DELIVERED for state in row.latest)
    return f"{accepted} of the latest {len(row.latest)} {'fetched' if row.queue_id else 'accepted'}"


def _row(row: HookRow, now: datetime) -> dict[str, Any]:
    return {
        "id": row.endpoint_id.hex,
        "name": text.inert(row.name, 120)[0] or text.short(row.endpoint_id.hex),
        "href": f"{PATH}/{row.endpoint_id.hex}",
        "to": destination(row),
        "account": row.account,
        "health": health(row, now),
        "strip": strip(row),
        "strip_words": strip_words(row),
        "waiting": counted(row.pending + row.sending),
        "held": counted(row.held),
        "dead": counted(row.dead),
    }


def _pages(seen: Seen, params: Mapping[str, str], keep: Mapping[str, str], account: str) -> dict[str, Any]:
    last = seen.rows[-1] if seen.rows else None
    older = ""
    if seen.more and last:
        older = batch_filter.address(PATH, **keep, q=account, after=places.written(last.created_at, last.endpoint_id))
    newer = batch_filter.address(PATH, **keep, q=account) if params.get("after") else ""
    words = f"{len(seen.rows)}, newest first"
    return {"names": (), "words": words, "older": older, "newer": newer, "cli": "slackwater subscription list"}
