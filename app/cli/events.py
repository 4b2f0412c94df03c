"""`slackwater events`: what waits to be fetched, shown and acknowledged."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.text import Text

from app.cli import tables
from app.cli.client import Client
from app.cli.options import console, settings
from app.cli.text import plain

Object = dict[str, Any]
_PAGE = 100
_WAIT_SECONDS = 20  # of one call, for a first event


def events(
    queue: Annotated[str | None, typer.Option(help="of one queue; without: of all")] = None,
    ack: Annotated[bool, typer.Option("--ack", help="acknowledge what is shown: it does not come again")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="go on until interrupted")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object a line")] = False,
) -> None:
    """Show the events that wait to be fetched. `slackwater subscription queue` makes a subscription that keeps them."""
    with Client.of(settings()) as client, suppress(KeyboardInterrupt):
        for page in _pages(client, queue, ack=ack, follow=follow):
            for event in page:
                _print(event, as_json=as_json)
            if ack:
                client.call("POST", "/events/ack", json={"ids": [event["id"] for event in page]})


def _pages(client: Client, queue: str | None, *, ack: bool, follow: bool) -> Iterator[list[Object]]:
    """What waits, oldest first. What was acknowledged is gone, so with `ack` each page begins at the start again."""
    after, wait = None, _WAIT_SECONDS if follow else 0
    while True:
        found = client.get("/events", queue_id=queue, after=after, limit=_PAGE, wait=wait)
        if found:
            yield found
            after = None if ack else found[-1]["id"]
        elif not follow:
            return


def _print(event: Object, *, as_json: bool) -> None:
    if as_json:
        tables.raw(console, json.dumps(event))
        return
    kind = event["body"].get("type", "?")
    head = (f"{event['id']}  ", (plain(kind).plain, "bold"), f"  {plain(event['queue_id'])}  {event['webhook_id']}")
    console.print(Text.assemble(*head), soft_wrap=True, highlight=False)
    console.print_json(data=event["body"])
