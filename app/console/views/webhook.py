"""One webhook with its deliveries, and one delivery with its attempts. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.access.roles import Viewer
from app.console.queries_webhooks import HookRow
from app.console.views import batch_filter, signs, text, times, webhooks
from app.console.views.batch_actions import Action
from app.console.views.figures import Figure, figure
from app.console.views.signs import Sign
from app.console.views.webhooks import PATH
from app.sentences import ended
from app.states import DeliveryState, EndpointState
from app.webhooks.deliveries import Attempt, Delivery
from app.webhooks.egress import FAULTS

PAGE_DELIVERIES = 30
STATES = {"all": "All", "dead": "Given up", "pending": "Waiting", "held": "Held", "delivered": "Accepted"}
PERIODS = {"1h": ("the last hour", 3600.0), "24h": ("the last day", 86_400.0), "7d": ("the last week", 604_800.0)}
OVERLAPS = {"24": "a day", "168": "a week", "0": "not at all"}
_NO_BATCH = "0" * 32
_SIGNS: dict[DeliveryState, tuple[Sign, str]] = {
    DeliveryState.DELIVERED: (signs.DONE, "accepted"),
    DeliveryState.PENDING: (signs.WAITS, "waits to be sent"),
    DeliveryState.HELD: (signs.PAUSED, "held"),
    DeliveryState.SENDING: (signs.RUNS, "is being sent"),
    DeliveryState.DEAD: (signs.BROKEN, "given up"),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page of an endpoint has read."""

    row: HookRow
    deliveries: Sequence[Delivery]
    more: bool
    accepted_at: datetime | None


@dataclass(frozen=True, slots=True)
class SeenDelivery:
    """What the page of a delivery has read."""

    row: HookRow
    delivery: Delivery
    attempts: Sequence[Attempt]


def view(seen: Seen, viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of an endpoint's page need."""
    row, path = seen.row, f"{PATH}/{seen.row.endpoint_id.hex}"
    state = webhooks.health(row, now)
    kind = params.get("state", "all")
    return {
        "name": text.inert(row.name, 120)[0] or text.short(row.endpoint_id.hex),
        "id": row.endpoint_id.hex,
        "sign": state.sign,
        "strong": f"{state.words}.",
        "rest": lede(seen, state, now),
        "actions": actions(row, viewer, path),
        "replay": replay(row, viewer, path),
        "rotate": rotate(row, viewer, path),
        "figures": figures(seen, now),
        "tabs": [
            {"name": name, "href": batch_filter.address(path, state=key if key != "all" else "") + "#h-log", "here": key == kind,
             "count": _count(row, key)}
            for key, name in STATES.items()
        ],
        "state": kind,
        "deliveries": [_delivery(each, path, now) for each in seen.deliveries],
        "pages": _pages(seen, params, path, kind),
        "facts": facts(row, now),
        "cli": f"slackwater subscription show {row.endpoint_id.hex}",
    }  # fmt: skip


def lede(seen: Seen, state: webhooks.Health, now: datetime) -> str:
    """What waits, since when, and what will happen."""
    row, said = seen.row, []
    if state.sub and row.state != EndpointState.PAUSED:
        said.append(text.sentence(ended(state.sub)))
    if row.pending:
        many = f"{webhooks.counted(row.pending)} {'event waits' if row.pending == 1 else 'events wait'}"
        said.append(f"{many} {'to be fetched' if row.queue_id else 'to be sent'}.")
    if row.held:
        said.append(f"{webhooks.counted(row.held)} {'is' if row.held == 1 else 'are'} held until it is active again.")
    if row.dead:
        said.append(
            f"{webhooks.counted(row.dead)} {'was' if row.dead == 1 else 'were'} given up; a replay sends them again."
        )
    if not said:
        said.append("Nothing waits.")
    return " ".join(said)


def figures(seen: Seen, now: datetime) -> list[Figure]:
    """At most five numbers."""
    row = seen.row
    ago = times.span((now - seen.accepted_at).total_seconds()) if seen.accepted_at else ""
    value, _, unit = ago.partition(text.NBSP)
    latest = [state for state in row.latest if state in (DeliveryState.DELIVERED, DeliveryState.DEAD)]
    share = text.percent(latest.count(DeliveryState.DELIVERED) / len(latest)) if latest else "–"
    found = [
        figure("Waiting", _figure(row.pending + row.sending), "", "to be fetched" if row.queue_id else "to be sent"),
        figure("Held", _figure(row.held), "", "until it is active"),
        figure("Given up", _figure(row.dead), "", "after every attempt", colour="bad" if row.dead else ""),
    ]
    if row.url:
        found.append(figure("Accepted", share, "%" if latest else "", f"of the latest {len(latest)} that ended"))
        found.append(figure("Last accepted", value or "–", f"{unit} ago".strip() if ago else "",
                            times.clock_time(seen.accepted_at, now) if ago else "never"))  # fmt: skip
    return found


def _figure(number: int) -> str:
    return webhooks.counted(number) if number else "0"


def actions(row: HookRow, viewer: Viewer, path: str) -> list[Action]:
    """Test, pause, enable, delete; those with a choice are `replay` and `rotate`."""
    if not viewer.role.acts:
        return []
    name, cli = text.inert(row.name, 80)[0], "slackwater subscription"
    stopped = row.state in (EndpointState.PAUSED, EndpointState.DISABLED)
    found = []
    if stopped:
        words = "A test event is sent to it. When it accepts that, the events that wait follow, and new ones are sent."
        if row.url is None:
            words = "Its events can be fetched again."
        found.append(
            Action(
                "enable",
                "Enable",
                f"{path}/enable",
                f"Enable {name}?",
                words,
                cli=f"{cli} enable {row.endpoint_id.hex}",
                icon="play",
                primary=True,
            )
        )
        return [*found, _delete(row, name, path, cli)]
    if row.url:
        words = (
            "One event of the type test is sent now. It says nothing about any batch. Until it is accepted it is sent again like "
            "any event, even if a later test has been accepted."
        )
        found.append(Action("test", "Test", f"{path}/test", f"Send a test event to {name}?", words, confirm="Send it",
                            cli=f"{cli} test {row.endpoint_id.hex}"))  # fmt: skip
    words = "Nothing is sent to it until somebody enables it. Its events wait, however many they become."
    found.append(Action("pause", "Pause", f"{path}/pause", f"Pause {name}?", words, cli=f"{cli} pause {row.endpoint_id.hex}",
                        icon="pause"))  # fmt: skip
    return [*found, _delete(row, name, path, cli)]


def _delete(row: HookRow, name: str, path: str, cli: str) -> Action:
    waits = row.pending + row.held
    many = (
        f"{webhooks.counted(waits)} {'event that waits is' if waits == 1 else 'events that wait are'} deleted with it. "
    )
    words = f"{many if waits else ''}It gets no events any more, and its deliveries cannot be seen. This cannot be taken back."
    return Action("delete", "Delete", f"{path}/delete", f"Delete {name}?", words, confirm="Delete it",
                  cli=f"{cli} delete {row.endpoint_id.hex}", danger=True)  # fmt: skip


def replay(row: HookRow, viewer: Viewer, path: str) -> dict[str, Any] | None:
    """The form of a replay. None: this viewer cannot act."""
    if not viewer.role.acts:
        return None
    off = "" if row.state == EndpointState.ACTIVE else "It has to be active first"
    return {"href": f"{path}/replay", "off": off, "cli": f"slackwater subscription replay {row.endpoint_id.hex} --since …",
            "periods": [(key, words) for key, (words, _) in PERIODS.items()]}  # fmt: skip


def rotate(row: HookRow, viewer: Viewer, path: str) -> dict[str, Any] | None:
    """The form of a rotation. None: this viewer may not see the secret, or there is none."""
    if not viewer.role.reveals or row.url is None:
        return None
    return {"href": f"{path}/rotate", "cli": f"slackwater subscription rotate {row.endpoint_id.hex}",
            "overlaps": list(OVERLAPS.items())}  # fmt: skip


def facts(row: HookRow, now: datetime) -> list[tuple[str, str, bool]]:
    """Name, value, and whether the value is code."""
    found = [("To", webhooks.destination(row), True), ("Account", row.account, False), ("Format", row.format, True)]
    found.append(("Events", text.inert(", ".join(row.kinds), 600)[0], True))
    asks = [row.model or "", *row.tags, *(f"{name}={value}" for name, value in row.metadata.items())]
    if any(asks):
        found.append(("Only of batches with", text.inert(", ".join(filter(None, asks)), 300)[0], True))
    if row.url:
        rate = f", {row.max_per_second:g} a second" if row.max_per_second else ""
        order = ", in order" if row.ordered else ""
        found.append(("Sent", f"{row.max_in_flight} at once{rate}{order}", False))
    if row.previous_until and row.previous_until > now:
        found.append(("Old secret signs until", times.clock_time(row.previous_until, now), False))
    found.append(("Made", times.iso(row.created_at), False))
    return found


def _count(row: HookRow, state: str) -> str:
    number = {"dead": row.dead, "pending": row.pending, "held": row.held}.get(state, 0)
    return webhooks.counted(number) if number else ""


def _pages(seen: Seen, params: Mapping[str, str], path: str, kind: str) -> dict[str, Any]:
    state = kind if kind != "all" else ""
    older = ""
    if seen.more and seen.deliveries:
        older = batch_filter.address(path, state=state, before=str(seen.deliveries[-1].delivery_id)) + "#h-log"
    newer = batch_filter.address(path, state=state) + "#h-log" if params.get("before") else ""
    words = f"{text.plural(len(seen.deliveries), 'delivery', 'deliveries')}, newest first"
    option = f" --state {state}" if state else ""
    return {"names": (), "words": words, "older": older, "newer": newer,
            "cli": f"slackwater subscription deliveries {seen.row.endpoint_id.hex}{option}"}  # fmt: skip


def _delivery(each: Delivery, path: str, now: datetime) -> dict[str, Any]:
    sign, words = _SIGNS[each.state]
    return {
        "id": each.delivery_id,
        "href": f"{path}/deliveries/{each.delivery_id}",
        "kind": each.kind,
        "at": each.occurred_at,
        "time": times.clock_time(each.occurred_at, now),
        "sign": sign,
        "words": words,
        "outcome": outcome(each.last) if each.last else "not tried yet",
        "took": times.span(each.last.duration_ms / 1000) if each.last else "–",
        "tries": each.attempts,
        "next": _next(each, now),
        "batch": "" if each.request_id.replace("-", "") in ("", _NO_BATCH) else each.request_id,
    }


def _next(each: Delivery, now: datetime) -> str:
    if each.state == DeliveryState.PENDING and each.next_attempt_at:
        ahead = (each.next_attempt_at - now).total_seconds()
        return f"in {times.span(ahead)}" if ahead > 0 else "now"
    return text.inert(each.reason or "", 200)[0]


def outcome(attempt: Attempt) -> str:
    """What became of an attempt: the status, or why there was none."""
    if attempt.error is None:
        return f"HTTP {attempt.http_status}"
    if attempt.http_status and attempt.error not in FAULTS:
        return f"HTTP {attempt.http_status}"
    return FAULTS.get(attempt.error, attempt.error.replace("_", " "))


def view_delivery(seen: SeenDelivery, viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of a delivery's page need."""
    row, each = seen.row, seen.delivery
    sign, words = _SIGNS[each.state]
    path = f"{PATH}/{row.endpoint_id.hex}"
    return {
        "hook": text.inert(row.name, 120)[0],
        "back": path,
        "id": each.delivery_id,
        "kind": each.kind,
        "sign": sign,
        "strong": f"{text.sentence(words)}.",
        "rest": _story(seen, now),
        "actions": [_redeliver(row, each, path)] if viewer.role.acts else [],
        "attempts": [_attempt(attempt, viewer) for attempt in reversed(seen.attempts)],
        "facts": _delivery_facts(each),
        "batch": _delivery(each, path, now)["batch"],
        "hidden": not viewer.role.of_account,
    }


def _story(seen: SeenDelivery, now: datetime) -> str:
    each = seen.delivery
    said = [
        f"{text.sentence(text.plural(each.attempts, 'attempt'))} of an event of {times.clock_time(each.occurred_at, now)}."
    ]
    if each.last and each.last.error is not None:
        said.append(f"The last one: {ended(outcome(each.last))}")
    if each.state == DeliveryState.PENDING and each.next_attempt_at:
        said.append(f"The next one is due {_next(each, now)}.")
    if each.reason:
        said.append(text.sentence(ended(text.inert(each.reason, 300)[0])))
    return " ".join(said)


def _redeliver(row: HookRow, each: Delivery, path: str) -> Action:
    words = f"The event is sent to {webhooks.destination(row)} now, whatever became of it before, and gets all attempts again."
    if each.state == DeliveryState.DELIVERED:
        words += " The receiver has accepted it already; it gets it a second time, with the same id."
    off = "" if row.state == EndpointState.ACTIVE else "The webhook has to be active first"
    return Action("redeliver", "Redeliver", f"{path}/deliveries/{each.delivery_id}/redeliver", "Send this event again?", words,
                  confirm="Send again", cli=f"slackwater subscription redeliver {row.endpoint_id.hex} {each.delivery_id}",
                  icon="retry", off=off)  # fmt: skip


def _attempt(attempt: Attempt, viewer: Viewer) -> dict[str, Any]:
    return {
        "n": attempt.n,
        "at": attempt.started_at,
        "time": times.seconds_time(attempt.started_at),
        "sign": signs.DONE if attempt.error is None else signs.BROKEN,
        "words": text.sentence(outcome(attempt)),
        "took": times.span(attempt.duration_ms / 1000),
        "address": attempt.address or "",
        "body": attempt.body if viewer.role.of_account and attempt.body else None,
    }


def _delivery_facts(each: Delivery) -> list[tuple[str, str, bool]]:
    return [
        ("Event", each.kind, True),
        ("webhook-id", each.webhook_id, True),
        ("Happened", times.iso(each.occurred_at), False),
        ("Delivery", str(each.delivery_id), False),
    ]
