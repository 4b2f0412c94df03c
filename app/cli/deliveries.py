"""The deliveries of a webhook: `slackwater subscription deliveries`, `delivery`, `test`, `redeliver` and `replay`."""

import time
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from app import clock
from app.cli import tables
from app.cli.client import Client
from app.cli.options import Json, console, settings
from app.sentences import ended
from app.states import DELIVERY, DeliveryState
from app.user_errors import Failure

SUBSCRIPTIONS = "/event_subscriptions/subscriptions"
PATIENCE_SECONDS = 20.0  # how long `test` waits for the first attempt

Object = dict[str, Any]
_POLL_SECONDS = 0.2
_MOST_SHOWN = 200  # characters of a receiver's response
_COLUMNS = ("delivery", "event", "state", "tries", "last answer", "next, or why none", "request id")
_ATTEMPTS = ("attempt", "at", "ms", "outcome", "address", "answer")


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not an id; `slackwater subscription list` shows them.") from None


SubscriptionId = Annotated[
    UUID, typer.Argument(metavar="ID", parser=_uuid, help="as `slackwater subscription list` shows it")
]
DeliveryId = Annotated[int, typer.Argument(metavar="DELIVERY", help="as `slackwater subscription deliveries` shows it")]


def mount(app: typer.Typer) -> None:
    """Add these commands to the group of subscriptions."""
    app.command("test")(send_test)
    app.command("deliveries")(show_list)
    app.command("delivery")(show)
    app.command("redeliver")(redeliver)
    app.command("replay")(replay)


def send_test(subscription_id: SubscriptionId, as_json: Json = False) -> None:
    """Send a test event and wait for the receiver's response."""
    path = _path(subscription_id)
    with Client.of(settings()) as client, tables.patience("Waiting for the receiver …"):
        found = _after_first_attempt(client, path, client.call("POST", f"{path}/test"))
    if as_json:
        tables.document(console, found)
    outcome = _outcome(found["last_attempt"])
    if found["state"] != DeliveryState.DELIVERED:
        remedy = f"`slackwater subscription deliveries {subscription_id.hex}` shows the attempts."
        if found["state"] == DeliveryState.DEAD:
            raise Failure(ended(f"Not delivered: {found['reason']}"), f"It will not be tried again; {remedy}")
        remedy = f"It will be tried again; {remedy}"
        raise Failure(ended(f"Not delivered: {_failure_message(found['last_attempt'])}"), remedy)
    if not as_json:
        tables.sentence(console, f"delivered in {found['last_attempt']['duration_ms']} ms: {outcome}")


def _after_first_attempt(client: Client, path: str, delivery: Object) -> Object:
    """The delivery after its first attempt. Raises Failure if no attempt is made in time."""
    deadline = clock.monotonic() + PATIENCE_SECONDS
    while delivery["last_attempt"] is None:
        if clock.monotonic() > deadline:
            raise _unanswered(delivery, client.get(f"{path}/deliveries", before=delivery["id"], limit=1))
        time.sleep(_POLL_SECONDS)
        delivery = client.get(f"{path}/deliveries/{delivery['id']}")
    return delivery


def _unanswered(delivery: Object, before: list[Object]) -> Failure:
    """Why a delivery has no attempt that has ended. `before`: the delivery before it, if there is one."""
    within = f"within {PATIENCE_SECONDS:.0f} s"
    if delivery["state"] == DeliveryState.SENDING:
        return Failure(
            f"The test event was sent, and the receiver has not ended its answer {within}.",
            "Let the receiver end its answer, body included, as soon as it has stored the event.",
        )
    if before and before[0]["last_attempt"] and before[0]["last_attempt"]["error"]:
        why = _failure_message(before[0]["last_attempt"])
        return Failure(
            ended(f"The test event waits, because the delivery before it failed: {why}"),
            "Mend the receiver; the test event is sent as soon as the pause after the failure ends.",
        )
    return Failure(
        f"No notifier has sent the test event {within}.",
        "Start a notifier: `slackwater up` runs one, `slackwater notifier` runs it alone.",
    )


def show_list(
    subscription_id: SubscriptionId,
    state: Annotated[str | None, typer.Option(help=f"only in this state: {', '.join(DELIVERY.stored())}")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="largest number of deliveries to list")] = 20,
    as_json: Json = False,
) -> None:
    """List the deliveries of a webhook, newest first."""
    with Client.of(settings()) as client:
        found = client.get(f"{_path(subscription_id)}/deliveries", state=state, limit=limit)
    if as_json:
        tables.document(console, found)
        return
    whole = ("delivery", "event", "state", "request id")
    tables.show(console, _COLUMNS, map(_row, found), whole=whole, wide=("request id",), numbers=("tries",))


def show(subscription_id: SubscriptionId, delivery_id: DeliveryId, as_json: Json = False) -> None:
    """Show one delivery: every attempt and the receiver's response."""
    with Client.of(settings()) as client:
        found = client.get(f"{_path(subscription_id)}/deliveries/{delivery_id}")
    if as_json:
        tables.document(console, found)
        return
    names = ("webhook_id", "event", "request_id", "state", "reason")
    tables.facts(console, {name.replace("_", " "): found[name] for name in names})
    console.print()
    tables.show(console, _ATTEMPTS, map(_attempt, found["tries"]), whole=("at",), wide=("address",), numbers=("ms",))


def redeliver(subscription_id: SubscriptionId, delivery_id: DeliveryId) -> None:
    """Send one delivery again now, in whatever state it is."""
    with Client.of(settings()) as client:
        client.call("POST", f"{_path(subscription_id)}/deliveries/{delivery_id}/redeliver")
    command = f"slackwater subscription delivery {subscription_id.hex} {delivery_id}"
    tables.sentence(console, f"it is sent again now; `{command}` shows the attempts")


def replay(
    subscription_id: SubscriptionId,
    since: Annotated[datetime, typer.Option(help="events from this local time on")],
    until: Annotated[datetime | None, typer.Option(help="events up to this local time; default: now")] = None,
    everything: Annotated[bool, typer.Option("--all", help="also events that the receiver has accepted")] = False,
    as_json: Json = False,
) -> None:
    """Send the events of a period again that the receiver did not accept or never received."""
    body: Object = {"since": since.astimezone().isoformat(), "only_failed": not everything}
    if until is not None:
        body["until"] = until.astimezone().isoformat()
    with Client.of(settings()) as client, tables.patience("Searching for events to send again …"):
        found = client.call("POST", f"{_path(subscription_id)}/replay", json=body)
    if as_json:
        tables.document(console, found)
        return
    more = "" if found["complete"] else "; there may be more: repeat it with a later --since"
    tables.sentence(console, f"{found['replayed']} events are sent again{more}")


def _path(subscription_id: UUID) -> str:
    return f"{SUBSCRIPTIONS}/{subscription_id.hex}"


def _row(found: Object) -> tuple[object, ...]:
    due = tables.when(found["next_attempt_at"], brief=console.is_terminal)
    outcome = _outcome(found["last_attempt"])
    state, tries = found["state"], found["attempts"]
    return found["id"], found["event"], state, tries, outcome, due or found["reason"], found["request_id"]


def _attempt(found: Object) -> tuple[object, ...]:
    at = tables.when(found["started_at"], brief=console.is_terminal)
    answer = (found.get("response_body") or "")[:_MOST_SHOWN]
    return found["number"], at, found["duration_ms"], _outcome(found), found["address"], answer


def _failure_message(attempt: Object) -> str:
    """Why an attempt failed, for a person to read."""
    from app.webhooks.egress import failure

    return failure(attempt["http_status"], attempt["error"] or "", attempt["duration_ms"])


def _outcome(attempt: Object | None) -> str:
    if attempt is None:
        return "none yet"
    return " ".join(str(part) for part in (attempt["http_status"], attempt["error"]) if part is not None)
