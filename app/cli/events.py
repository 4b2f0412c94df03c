"""`slackwater events`: what waits to be fetched, shown and acknowledged."""

import time

from rich.console import Console
from rich.text import Text

from app.cli.admin import on_database
from app.cli.text import plain
from app.db.pool import Connection
from app.settings import Settings
from app.tenants import service as tenants
from app.webhooks import fetching
from app.webhooks.fetching import Waiting

_LOOK_SECONDS = 0.5
_PAGE = 100


def events(
    settings: Settings, account: str, queue_id: str | None, console: Console, *, ack: bool, follow: bool
) -> None:
    """Print all that waits, oldest first; with `ack` take it out, once it is printed. Raises Failure."""
    after = 0

    async def page(conn: Connection) -> list[Waiting]:
        tenant_id = await tenants.find_tenant(conn, account)
        return await fetching.waiting(conn, tenant_id, queue_id=queue_id, after=after, limit=_PAGE)

    async def acknowledge(conn: Connection) -> int:
        tenant_id = await tenants.find_tenant(conn, account)
        return await fetching.acknowledge(conn, tenant_id, [each.delivery_id for each in found])

    while True:
        found = on_database(settings, page)
        for each in found:
            _show(console, each)
        if ack and found:
            on_database(settings, acknowledge)
        if found:
            after = found[-1].delivery_id
        elif not follow:
            return
        else:
            after = 0 if ack else after  # what was committed late has a lower number
            time.sleep(_LOOK_SECONDS)


def _show(console: Console, waiting: Waiting) -> None:
    event = waiting.event
    moment = f"{event.occurred_at.astimezone():%Y-%m-%d %H:%M:%S}"
    head = (f"{waiting.delivery_id}  {moment}  ", (str(plain(event.kind)), "bold"), f"  {event.data['request_id']}")
    console.print(Text.assemble(*head, f"  {plain(waiting.queue_id)}"), soft_wrap=True)
    console.print_json(waiting.body.decode())
