"""`slackwater top`: the installation live on a terminal, from the JSON routes of the API. `top_view` draws it."""

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Annotated, Any

import typer
from rich.live import Live

from app import clock
from app.cli import status as installation
from app.cli import top_view
from app.cli.client import Client
from app.cli.credentials import api_url
from app.cli.options import console
from app.cli.options import settings as configured
from app.cli.top_view import Sight
from app.settings import Settings
from app.user_errors import Failure

MINUTES, POINTS = 15, 90  # a point for each sample, so that the last one is of now
HISTORY_SECONDS = 10.0  # between two looks at what changes slowly
MOST_BATCHES = 50
MOST_ENGINES = 16  # whose history is read


def top(
    every: Annotated[float, typer.Option(min=0.5, max=60, help="seconds between two frames")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="print one frame and end")] = False,
) -> None:
    """Show engines, queue, batches and the protection of synchronous callers, live. Ctrl-C ends it."""
    settings = configured()
    with ExitStack() as stack:
        reader = Reader(settings, lambda: stack.enter_context(Client.of(settings)))
        first = reader.read()
        if once or not console.is_terminal:
            console.print(top_view.frame(first, console.width, console.height))
            return
        with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
            sight = first
            while True:
                live.update(top_view.frame(sight, console.width, console.height), refresh=True)
                time.sleep(every)
                sight = reader.read()


class Reader:
    """Reads what a frame shows. An API that does not answer later is shown in the frame, with what was read before.

    `connect` makes a client with the key of this user. While it raises Failure, only the state of the installation is shown.
    """

    def __init__(self, settings: Settings, connect: Callable[[], Client]) -> None:
        self._settings = settings
        self._connect = connect
        self._client: Client | None = None
        self._slow: dict[str, Any] = {}
        self._read_at = -HISTORY_SECONDS
        self._last: Sight | None = None

    def read(self) -> Sight:
        """The next frame's facts. Raises Failure if the first call fails."""
        try:
            self._last = self._read()
        except Failure as failure:
            if self._last is None:
                raise
            return Sight(
                **{
                    **_fields(self._last),
                    "note": f"{failure} What is shown is as of {self._last.now.astimezone():%H:%M:%S %Z}.",
                }
            )
        return self._last

    def _read(self) -> Sight:
        status = installation.fetch(self._settings)
        url = api_url(self._settings)
        try:
            client = self._client = self._client or self._connect()
        except Failure as failure:
            return Sight(url, clock.now(), status, note=f"Batches and histories need a key. {failure.remedy}")
        page = client.page("/ai/batches", state=["running", "queued", "paused"], limit=MOST_BATCHES)
        if clock.monotonic() >= self._read_at + HISTORY_SECONDS:
            self._slow, self._read_at = self._history(client, status), clock.monotonic()
        batches = sorted(page.rows, key=lambda batch: batch["status"] != "running")
        return Sight(url, clock.now(), status, batches=batches, more_batches=bool(page.cursor), **self._slow)

    def _history(self, client: Client, status: dict[str, Any]) -> dict[str, Any]:
        since = f"{MINUTES}m"
        names = [engine["name"] for engine in status["engines"][:MOST_ENGINES]]
        return {
            "histories": {
                name: client.get(f"/ai/engines/{name}/history", since=since, points=POINTS)["samples"] for name in names
            },
            "protection": client.get("/ai/protection", since=since, points=MINUTES),
            "incidents": client.get("/ai/incidents", since="1h", limit=5),
        }


def _fields(sight: Sight) -> dict[str, Any]:
    return {name: getattr(sight, name) for name in Sight.__dataclass_fields__}
