"""`slackwater listen`: a webhook receiver on this machine that verifies what comes and shows it, for development."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from rich.console import Console
from rich.text import Text

from app import clock
from app.cli import webhooks
from app.cli.receiver import Received, Receiver
from app.cli.text import plain
from app.settings import Settings


def listen(settings: Settings, account: str, port: int, secret: str, status: int, console: Console) -> None:
    """Show webhooks until interrupted. Without a secret the receiver subscribes itself for that time. Raises Failure."""
    with suppress(asyncio.CancelledError):
        asyncio.run(_listen(settings, account, Receiver(port, status), secret, console))


async def _listen(settings: Settings, account: str, receiver: Receiver, secret: str, console: Console) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    async with receiver, _subscribed(settings, account, receiver, secret):
        whose = "with your secret" if secret else f"subscribed to what happens in account {account} until you stop it"
        console.print(f"listening at {receiver.url}, {whose}; Ctrl+C ends it", highlight=False, soft_wrap=True)
        while True:
            show(console, await receiver.received.get())


@asynccontextmanager
async def _subscribed(settings: Settings, account: str, receiver: Receiver, secret: str) -> AsyncIterator[None]:
    """A subscription of its own for the block, unless there is a secret of one."""
    if secret:
        receiver.secret = secret
        yield
        return
    own = settings.model_copy(update={"webhook_allow_private": True})  # the receiver is on this machine
    made = await asyncio.to_thread(webhooks.create, own, account, receiver.url, "slackwater listen")
    subscription_id, keys = made
    receiver.secret = keys.secret
    try:
        yield
    finally:
        await asyncio.to_thread(webhooks.delete, settings, account, subscription_id)


def show(console: Console, got: Received) -> None:
    """One webhook: when, what, whether it is genuine, its id, its body."""
    kind = got.body.get("type", "?") if isinstance(got.body, dict) else "?"
    verdict = Text("signature verified", "green") if got.verified else Text("WRONG SIGNATURE", "bold red")
    head = Text.assemble(
        f"{clock.now().astimezone():%H:%M:%S}  ", (str(plain(kind)), "bold"), "  ", verdict,
        f"  {plain(got.headers.get('webhook-id', 'without webhook-id'))}",
    )  # fmt: skip
    console.print(head, soft_wrap=True)
    if isinstance(got.body, bytes):
        console.print(plain(got.body.decode(errors="replace")), soft_wrap=True)
    else:
        console.print_json(data=got.body)
