"""`slackwater subscription …`: webhooks, and what was sent to them."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer

from app.cli import webhooks
from app.cli.options import Account, console, settings
from app.states import DELIVERY
from app.webhooks.endpoints import Filter
from app.webhooks.formats import FORMATS
from app.webhooks.rules import KINDS, MOST_IN_FLIGHT, USUAL_KINDS, Limits

app = typer.Typer(help="Webhooks: who is told when a batch is queued or done, and what was sent.", no_args_is_help=True)

SubscriptionId = Annotated[UUID, typer.Argument(metavar="ID", help="as `slackwater subscription list` shows it")]
DeliveryId = Annotated[int, typer.Argument(metavar="DELIVERY", help="as `slackwater subscription deliveries` shows it")]


Name = Annotated[str, typer.Option(help="a name to find it by")]
Model = Annotated[str | None, typer.Option(help="only this model's events; without: all")]
Tag = Annotated[list[str] | None, typer.Option(help="only batches with this tag; repeated: with all of them")]
Pair = Annotated[
    list[str] | None, typer.Option("--metadata", help="KEY=VALUE: only batches with this metadata; may be repeated")
]
Event = Annotated[
    list[str] | None,
    typer.Option(help=f"one of {', '.join(KINDS)}; may be repeated; without: {', '.join(USUAL_KINDS)}"),
]
Shape = Annotated[str, typer.Option("--format", help=f"of its bodies: {', '.join(FORMATS)}")]


@app.command("create")
def create(
    url: Annotated[str, typer.Argument(help="https URL that takes the webhooks")],
    account: Account = "local",
    name: Name = "webhook",
    model: Model = None,
    tag: Tag = None,
    metadata: Pair = None,
    event: Event = None,
    shape: Shape = "workers_ai",
    at_once: Annotated[int, typer.Option(min=1, max=MOST_IN_FLIGHT, help="deliveries on their way to it at once")] = 8,
    per_second: Annotated[float | None, typer.Option(min=0.01, help="deliveries a second; without: any")] = None,
    ordered: Annotated[bool, typer.Option("--ordered", help="of one batch, one event after the other")] = False,
    asymmetric: Annotated[
        bool, typer.Option("--asymmetric", help="sign with ed25519 as well, and print the public key")
    ] = False,
) -> None:
    """Register a webhook and print its id and keys, this once. It is active once it has accepted a test event."""
    of, limits = _filter(model, tag, metadata), Limits(at_once, per_second, ordered)
    subscription_id, keys = webhooks.create(
        settings(), account, url, name, of, event or (), shape, limits, asymmetric=asymmetric
    )
    lines = [
        f"id      {subscription_id.hex}",
        f"secret  {keys.secret}",
        *([f"public  {keys.public}"] if keys.public else []),
    ]
    console.print("\n".join(lines), highlight=False, soft_wrap=True)


@app.command("queue")
def create_queue(
    queue: Annotated[str, typer.Argument(metavar="NAME", help="by which its events are fetched; any name will do")],
    account: Account = "local",
    name: Name = "queue",
    model: Model = None,
    tag: Tag = None,
    metadata: Pair = None,
    event: Event = None,
    shape: Shape = "workers_ai",
) -> None:
    """Keep events until they are fetched, for those without a public URL. `slackwater events` shows and acknowledges them."""
    of = _filter(model, tag, metadata)
    subscription_id = webhooks.create_queue(settings(), account, queue, name, of, event or (), shape)
    console.print(f"id  {subscription_id.hex}", highlight=False, soft_wrap=True)


def _filter(model: str | None, tags: list[str] | None, metadata: list[str] | None) -> Filter:
    pairs = dict(pair.partition("=")[::2] for pair in metadata or ())
    return Filter(model, tags or (), pairs)


@app.command("list")
def show_all(account: Account = "local") -> None:
    """List an account's webhooks."""
    webhooks.show_all(settings(), account, console)


@app.command("test")
def send_test(subscription_id: SubscriptionId, account: Account = "local") -> None:
    """Send a test event and wait for what becomes of it."""
    webhooks.test(settings(), account, subscription_id, console)


@app.command("deliveries")
def deliveries(
    subscription_id: SubscriptionId,
    account: Account = "local",
    state: Annotated[str | None, typer.Option(help=f"only those: {', '.join(DELIVERY.stored())}")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="so many, the newest first")] = 20,
) -> None:
    """List what was sent to a webhook and how it went."""
    webhooks.show_deliveries(settings(), account, subscription_id, console, state=state, limit=limit)


@app.command("delivery")
def delivery(subscription_id: SubscriptionId, delivery_id: DeliveryId, account: Account = "local") -> None:
    """Show one delivery: every attempt and what the receiver answered."""
    webhooks.show_delivery(settings(), account, subscription_id, delivery_id, console)


@app.command("redeliver")
def redeliver(subscription_id: SubscriptionId, delivery_id: DeliveryId, account: Account = "local") -> None:
    """Send one delivery again, now, whatever became of it."""
    webhooks.redeliver(settings(), account, subscription_id, delivery_id)
    console.print("sent within a moment; `slackwater subscription delivery` shows how it goes")


@app.command("replay")
def replay(
    subscription_id: SubscriptionId,
    since: Annotated[datetime, typer.Option(help="from this time on, in this machine's zone")],
    until: Annotated[datetime | None, typer.Option(help="up to this time; without: now")] = None,
    account: Account = "local",
    everything: Annotated[bool, typer.Option("--all", help="what was accepted too, not only the rest")] = False,
) -> None:
    """Send what happened in a time again: what the receiver has not accepted, or was never told."""
    count = webhooks.replay(settings(), account, subscription_id, since, until, everything=everything)
    console.print(f"{count} events are sent again")


@app.command("rotate")
def rotate(
    subscription_id: SubscriptionId,
    account: Account = "local",
    overlap_hours: Annotated[float, typer.Option(min=0, max=168, help="the old key signs too for so long")] = 24,
) -> None:
    """Change the signing secret and print the new one, this once."""
    secret = webhooks.rotate(settings(), account, subscription_id, overlap_hours)
    console.print(f"secret  {secret}", highlight=False, soft_wrap=True)


@app.command("pause")
def pause(subscription_id: SubscriptionId, account: Account = "local") -> None:
    """Send a webhook nothing for now; what happens waits for it."""
    console.print(f"{webhooks.switch(settings(), account, subscription_id, 'pause')}; `enable` goes on")


@app.command("disable")
def disable(subscription_id: SubscriptionId, account: Account = "local") -> None:
    """Tell a webhook nothing more; `replay` makes up for it later."""
    console.print(webhooks.switch(settings(), account, subscription_id, "disable"))


@app.command("enable")
def enable(subscription_id: SubscriptionId, account: Account = "local") -> None:
    """Go on after `pause` or `disable`: a test event is sent, and once it is accepted what was waiting."""
    state = webhooks.switch(settings(), account, subscription_id, "enable")
    console.print(f"{state}; `test` shows whether it is accepted, `replay` sends what was missed while disabled")


@app.command("delete")
def delete(subscription_id: SubscriptionId, account: Account = "local") -> None:
    """Remove a webhook."""
    webhooks.delete(settings(), account, subscription_id)
    console.print("deleted")
