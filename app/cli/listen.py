"""`slackwater listen`: a webhook receiver on this machine that verifies and shows webhooks, for development."""

import asyncio
import ipaddress
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import httpx
import typer
from rich.console import Console
from rich.text import Text

from app import clock
from app.cli import subscription
from app.cli.client import Client
from app.cli.options import console, settings
from app.cli.text import plain
from app.user_errors import Failure

if TYPE_CHECKING:  # its HTTP server would slow down the start of every other command
    from app.cli.receiver import Received, Receiver


def listen(
    port: Annotated[int, typer.Option(min=0, max=65535, help="port of the receiver; 0 takes any free port")] = 0,
    secret: Annotated[
        str, typer.Option(help="secret of your own subscription; default: create one, and delete it at the end")
    ] = "",
    status: Annotated[
        int, typer.Option(min=200, max=599, help="HTTP status of the responses, to imitate a failing receiver")
    ] = 204,
) -> None:
    """Receive, verify and show webhooks on this machine, for development."""
    from app.cli.receiver import Receiver

    receiver = Receiver(port, status)
    with suppress(asyncio.CancelledError):
        if secret:
            receiver.secret = secret
            asyncio.run(_listen(receiver, None))
            return
        with Client.of(settings()) as client:
            _check_local(client.url)
            asyncio.run(_listen(receiver, client))


def _check_local(url: str) -> None:
    """Raise Failure for an API on another machine, which cannot reach a receiver here."""
    host = httpx.URL(url).host
    with suppress(ValueError):
        if host == "localhost" or ipaddress.ip_address(host).is_loopback:
            return
    remedy = "Use `slackwater subscription queue` and `slackwater events --follow`; or open a tunnel to this machine, "
    remedy += "create a subscription for the tunnel's URL, and pass --secret and --port."
    raise Failure(f"{url} is another machine, which cannot send webhooks to this one.", remedy)


async def _listen(receiver: "Receiver", client: Client | None) -> None:
    """Show webhooks until a signal arrives. Without a client, the user has created the subscription."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    async with receiver, _subscribed(receiver, client) as source:
        console.print(f"listening at {receiver.url}, {source}; Ctrl+C stops it", highlight=False, soft_wrap=True)
        while True:
            show(console, await receiver.received.get())


@asynccontextmanager
async def _subscribed(receiver: "Receiver", client: Client | None) -> AsyncIterator[str]:
    """Create a subscription for the block if there is a client. Yields a phrase that says which one is used."""
    if client is None:
        yield "with your secret"
        return
    to = {"type": "webhook", "url": receiver.url}
    made = await asyncio.to_thread(subscription.register, client, "slackwater listen", to)
    receiver.secret = made["destination"]["secret"]
    try:
        yield f"subscribed to the events of account {client.account} until you stop it"
    finally:
        await asyncio.to_thread(client.call, "DELETE", f"{subscription.PATH}/{made['id']}")


def show(to: Console, got: "Received") -> None:
    """Print one webhook: time, type, result of the verification, id, body."""
    kind = got.body.get("type", "?") if isinstance(got.body, dict) else "?"
    verdict = Text("signature verified", "green") if got.verified else Text("WRONG SIGNATURE", "bold red")
    head = Text.assemble(
        f"{clock.now().astimezone():%H:%M:%S %Z}  ", (str(plain(kind)), "bold"), "  ", verdict,
        f"  {plain(got.headers.get('webhook-id', 'without webhook-id'))}",
    )  # fmt: skip
    to.print(head, soft_wrap=True)
    if isinstance(got.body, bytes):
        to.print(plain(got.body.decode(errors="replace")), soft_wrap=True)
    else:
        to.print_json(data=got.body)
