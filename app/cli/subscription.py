"""`slackwater subscription …`: create, list and change webhooks and queues. Their deliveries are in `deliveries`."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from app.cli import deliveries, tables
from app.cli.client import Client
from app.cli.deliveries import SubscriptionId
from app.cli.options import Json, console, errors, pairs, settings
from app.events import KINDS, USUAL_KINDS
from app.webhooks.formats import FORMATS, known_kinds
from app.webhooks.validation import MOST_IN_FLIGHT, usual_name

app = typer.Typer(
    help="Create and manage webhooks and queues for the events of batches; see what was delivered.",
    no_args_is_help=True,
)

Object = dict[str, Any]
PATH = deliveries.SUBSCRIPTIONS
_PAGE = 100
_NEXT = (
    "A test event is sent to it now. It gets events once it has accepted one: start the receiver; "
    "`slackwater subscription test {0}` sends another, `slackwater subscription show {0}` has its state."
)
_COLUMNS = ("id", "state", "name", "to", "model", "events", "format")
_WIDE = ("model", "events", "format")

Name = Annotated[str, typer.Option(help="name of the subscription")]
Model = Annotated[str | None, typer.Option(help="only events of this model; default: all models")]
Tag = Annotated[list[str] | None, typer.Option(help="only batches with this tag; if repeated, with all of them")]
Pair = Annotated[
    list[str] | None, typer.Option("--metadata", help="KEY=VALUE: only batches with this metadata; may be repeated")
]
Event = Annotated[
    list[str] | None,
    typer.Option(help=f"one of {', '.join(KINDS)}; may be repeated; default: {', '.join(USUAL_KINDS)}"),
]
Format = Annotated[str, typer.Option("--format", help=f"format of the bodies: {', '.join(FORMATS)}")]


@app.command("create")
def create(
    url: Annotated[str, typer.Argument(help="https URL that receives the webhooks")],
    name: Annotated[str, typer.Option(help="name of the subscription; default: the host of the URL")] = "",
    model: Model = None,
    tag: Tag = None,
    metadata: Pair = None,
    event: Event = None,
    shape: Format = "workers_ai",
    at_once: Annotated[int, typer.Option(min=1, max=MOST_IN_FLIGHT, help="largest number of deliveries in flight")] = 8,
    per_second: Annotated[
        float | None, typer.Option(min=0.01, help="largest number of deliveries per second; default: no limit")
    ] = None,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="send the events of one batch one after the other")
    ] = False,
    asymmetric: Annotated[
        bool, typer.Option("--asymmetric", help="also sign with ed25519, and print the public key")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create a webhook. Its keys are shown only once. It becomes active when it accepts a test event."""
    destination = {"type": "webhook", "url": url, "asymmetric": asymmetric, "ordered": ordered}
    destination |= {"max_in_flight": at_once, "max_per_second": per_second}
    source = _source(model, tag, metadata)
    with Client.of(settings()) as client:
        found = register(client, name or usual_name(url), destination, source=source, events=event, shape=shape)
        warning = client.warning
    _print_made(found, as_json=as_json)
    if warning:
        tables.sentence(errors, f"Warning: {warning.removeprefix('destination.url: ')}.")
    if not as_json:
        tables.sentence(errors, _NEXT.format(found["id"]))


@app.command("queue")
def create_queue(
    queue: Annotated[str, typer.Argument(metavar="NAME", help="name of the queue, chosen freely")],
    name: Name = "queue",
    model: Model = None,
    tag: Tag = None,
    metadata: Pair = None,
    event: Event = None,
    shape: Format = "workers_ai",
    as_json: Json = False,
) -> None:
    """Create a queue that keeps events until they are fetched, without a public URL. `slackwater events` reads it."""
    destination = {"type": "queues.queue", "queue_id": queue}
    source = _source(model, tag, metadata)
    with Client.of(settings()) as client:
        found = register(client, name, destination, source=source, events=event, shape=shape)
    _print_made(found, as_json=as_json)


def register(
    client: Client,
    name: str,
    destination: Object,
    *,
    source: Object | None = None,
    events: list[str] | None = None,
    shape: str = "workers_ai",
) -> Object:
    """Create a subscription, by default for the usual events. Only this response contains its keys. Raises Failure."""
    body = {
        "name": name,
        "source": source or {},
        "destination": destination | {"format": shape},
        "events": events or known_kinds(shape, USUAL_KINDS),
    }
    return dict(client.call("POST", PATH, json=body))


@app.command("list")
def show_list(as_json: Json = False) -> None:
    """List the webhooks and queues of the account."""
    with Client.of(settings()) as client, tables.patience("Reading the list …"):
        found = list(_all(client))
    if as_json:
        tables.document(console, found)
    else:
        tables.show(console, _COLUMNS, map(_row, found), whole=("id",), wide=_WIDE)


@app.command("show")
def show(subscription_id: SubscriptionId, as_json: Json = False) -> None:
    """Show one subscription: its destination, its events and its state."""
    found = _call("GET", f"{PATH}/{subscription_id.hex}")
    if as_json:
        tables.document(console, found)
    else:
        tables.facts(console, _described(found))


@app.command("rotate")
def rotate(
    subscription_id: SubscriptionId,
    overlap_hours: Annotated[
        float, typer.Option(min=0, max=168, help="hours for which the old secret also signs")
    ] = 24,
    as_json: Json = False,
) -> None:
    """Replace the signing secret, and the key pair of `--asymmetric`, and print the new ones. The secret is shown only once."""
    found = _call("POST", f"{PATH}/{subscription_id.hex}/rotate_secret", {"overlap_hours": overlap_hours})
    if as_json:
        tables.document(console, found)
    else:
        tables.facts(console, _keys(found))


@app.command("pause")
def pause(subscription_id: SubscriptionId) -> None:
    """Pause a webhook. Its events wait until `enable`."""
    found = _call("POST", f"{PATH}/{subscription_id.hex}/pause")
    tables.sentence(console, f"{found['state']}; `enable` continues it")


@app.command("disable")
def disable(subscription_id: SubscriptionId) -> None:
    """Disable a webhook. Events are not kept for it; `replay` can send them later."""
    tables.sentence(console, _call("POST", f"{PATH}/{subscription_id.hex}/disable")["state"])


@app.command("enable")
def enable(subscription_id: SubscriptionId) -> None:
    """Continue after `pause` or `disable`. A test event is sent first; when it is accepted, waiting events follow."""
    found = _call("PATCH", f"{PATH}/{subscription_id.hex}", {"enabled": True})
    rest = "`test` shows whether it is accepted, `replay` sends the events of the time while it was disabled"
    tables.sentence(console, f"{found['state']}; {rest}")


@app.command("delete")
def delete(subscription_id: SubscriptionId) -> None:
    """Delete a webhook or a queue, with the events that wait in it."""
    _call("DELETE", f"{PATH}/{subscription_id.hex}")
    tables.sentence(console, "deleted")


deliveries.mount(app)


def _call(method: str, path: str, body: Object | None = None) -> Object:
    with Client.of(settings()) as client:
        return dict(client.call(method, path, json=body))


def _all(client: Client) -> Iterator[Object]:
    """Every subscription of the account, page by page."""
    page = 1
    while rows := client.get(PATH, page=page, per_page=_PAGE):
        yield from rows
        if len(rows) < _PAGE:
            return
        page += 1


def _source(model: str | None, tags: list[str] | None, metadata: list[str] | None) -> Object:
    return {"model_name": model or "*", "tags": tags or [], "metadata": pairs(metadata)}


def _print_made(made: Object, *, as_json: bool) -> None:
    """Print the id, state and keys of a new subscription. The keys are shown only once, and not
    wrapped, so they can be copied."""
    if as_json:
        tables.document(console, made)
    else:
        tables.facts(console, {"id": made["id"], "state": _state(made)} | _keys(made))


def _keys(subscription: Object) -> Object:
    to = subscription["destination"]
    return {"secret": to.get("secret"), "public": to.get("public_key")}


def _state(subscription: Object) -> str:
    reason = subscription["disabled_reason"]
    return f"{subscription['state']}: {reason}" if reason else str(subscription["state"])


def _to(subscription: Object) -> str:
    to = subscription["destination"]
    return str(to.get("url") or f"fetched as {to['queue_id']}")


def _row(found: Object) -> tuple[object, ...]:
    source, to = found["source"], found["destination"]
    return found["id"], _state(found), found["name"], _to(found), source["model_name"], found["events"], to["format"]


def _described(found: Object) -> Object:
    source, to = found["source"], found["destination"]
    return {
        "id": found["id"],
        "name": found["name"],
        "state": _state(found),
        "to": _to(found),
        "format": to["format"],
        "events": ", ".join(found["events"]),
        "model": source["model_name"],
        "tags": ", ".join(source["tags"]) or None,
        "metadata": ", ".join(f"{key}={value}" for key, value in source["metadata"].items()) or None,
        "at once": to.get("max_in_flight"),
        "per second": to.get("max_per_second"),
        "ordered": "yes" if to.get("ordered") else None,
        "made": tables.when(found["created_at"]),
        "changed": tables.when(found["modified_at"]),
        "failing": f"since {tables.when(found['failing_since'])}" if found["failing_since"] else None,
    }
