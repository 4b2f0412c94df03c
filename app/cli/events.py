"""`slackwater events`: show the events that wait in queues, and acknowledge them."""

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
_WAIT_SECONDS = 20  # how long one call waits for a first event


def events(
    queue: Annotated[str | None, typer.Option(help="only events of this queue; default: of all queues")] = None,
    ack: Annotated[
        bool, typer.Option("--ack", help="acknowledge the events shown, so that they are not shown again")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="keep running and show new events until interrupted")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object per line")] = False,
) -> None:
    """Show the events that wait in queues. `slackwater subscription queue` creates a queue."""
    with Client.of(settings()) as client, suppress(KeyboardInterrupt):
        for page in _pages(client, queue, ack=ack, follow=follow):
            for event in page:
                _print(event, as_json=as_json)
            if ack:
                client.call("POST", "/events/ack", json={"ids": [event["id"] for event in page]})


def _pages(client: Client, queue: str | None, *, ack: bool, follow: bool) -> Iterator[list[Object]]:
    """Pages of waiting events, oldest first. With `ack`, acknowledged events are gone, so each page starts at the front."""
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
