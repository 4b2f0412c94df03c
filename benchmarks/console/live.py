"""Arm `live`: from the commit of a change in the database to its arrival at open pages, while many other pages are open.

Changes are committed at random moments, so that they fall anywhere within the second of the console. One transaction changes
what each of the watched pages shows: the name of the large batch, and the number of requests that an engine has in flight.
"""

import asyncio
import random
from collections.abc import Sequence
from statistics import median, quantiles
from time import monotonic
from typing import Any

import psycopg

from app.access.roles import Role
from benchmarks.console.installed import ENGINE, LARGE_BATCH, Installed, install
from benchmarks.console.live_stream import LiveStream, opened
from benchmarks.console.open_pages import PLAIN, open_pages, stream
from benchmarks.console.site import Site, console
from benchmarks.harness import Testbed, say
from testing.waiting import LIMIT_SECONDS

_WATCHED = {
    "now": stream("now"),
    "batches": stream("batches"),
    "batch": stream("batch", batch_id=LARGE_BATCH),
}
_OPEN = (*map(stream, PLAIN), _WATCHED["batch"], stream("engine", name=ENGINE))
_STREAMS_EACH = 3
_CHANGE = """
with named as (update batch set name = 'change-' || %(number)s::int where request_id = %(batch)s)
update engine set in_engine = jsonb_build_object('0', %(number)s::int) where name = %(engine)s"""


def live(testbed: Testbed, batches: int, items: int, changes: int, consoles: int) -> dict[str, Any]:
    """The lag of all changes at all watched streams."""
    installed = install(testbed, batches, items)
    with console(installed.settings) as site, open_pages(site, _OPEN, consoles) as others:
        lags = asyncio.run(_measured(site, installed, changes))
        others.report()
    found = {name: [round(ms) for ms in values] for name, values in lags.items()}
    together = [ms for values in lags.values() for ms in values]
    p95 = round(quantiles(together, n=20, method="inclusive")[-1])
    say(f"live updates: p50 {median(together):.0f} ms, p95 {p95} ms")
    return {
        "live_update_lag_ms_p95": p95,
        "live_update_lag_ms_p50": round(median(together)),
        "live_update_lag_ms_most": round(max(together)),
        "live_update_lag_ms_p95_by_page": {
            name: round(quantiles(values, n=20, method="inclusive")[-1]) for name, values in found.items()
        },
        "live_changes": changes,
        "live_streams": len(_WATCHED) * _STREAMS_EACH,
        "live_consoles_beside": consoles,
    }


class _Watch:
    """One stream, and the change that it shall show next."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._marker = b""
        self._arrived: asyncio.Future[float] | None = None

    def expect(self, number: int) -> "asyncio.Future[float]":
        """When the change has arrived."""
        self._marker = (f">{number:,}<" if self.name == "now" else f"change-{number}<").encode()
        self._arrived = asyncio.get_running_loop().create_future()
        return self._arrived

    async def follow(self, live_stream: LiveStream) -> None:
        """Read the stream until it is cancelled. Raises StreamEndedError."""
        async for arrived, event in live_stream.events():
            if self._arrived and not self._arrived.done() and self._marker in event:
                self._arrived.set_result(arrived)


async def _measured(site: Site, installed: Installed, changes: int) -> dict[str, list[float]]:
    """Milliseconds of each change, by page."""
    rng = random.Random(7)
    lags: dict[str, list[float]] = {name: [] for name in _WATCHED}
    watches = [_Watch(name) for name in _WATCHED for _ in range(_STREAMS_EACH)]
    cookies = await asyncio.to_thread(lambda: [site.sign_in(Role.OPERATOR, name="watcher") for _ in watches])
    connection = await psycopg.AsyncConnection.connect(installed.settings.database_url, autocommit=True)
    async with asyncio.TaskGroup() as group, connection as conn:
        following = [
            group.create_task(_follow(site, watch, cookie, rng.random()))
            for watch, cookie in zip(watches, cookies, strict=True)
        ]
        await asyncio.sleep(3)
        for number in range(changes):
            await asyncio.sleep(rng.uniform(0.2, 1.2))
            for watch, ms in await _change(conn, watches, 1000 + number):
                lags[watch.name].append(ms)
        for task in following:
            task.cancel()
    return lags


async def _follow(site: Site, watch: _Watch, cookie: str, delay: float) -> None:
    """Open the stream after `delay` seconds, so that streams begin at any part of a second."""
    await asyncio.sleep(delay)
    async with opened(site.port, _WATCHED[watch.name], cookie) as live_stream:
        await watch.follow(live_stream)


async def _change(
    conn: psycopg.AsyncConnection[Any], watches: Sequence[_Watch], number: int
) -> list[tuple[_Watch, float]]:
    """Commit one change, and wait until every stream shows it."""
    futures = [watch.expect(number) for watch in watches]
    await conn.execute(_CHANGE, {"number": number, "batch": LARGE_BATCH, "engine": ENGINE})
    committed = monotonic()
    try:
        arrived = await asyncio.wait_for(asyncio.gather(*futures), LIMIT_SECONDS)
    except TimeoutError:
        missing = {
            watch.name
            for watch, future in zip(watches, futures, strict=True)
            if not future.done() or future.cancelled()
        }
        raise SystemExit(
            f"change {number} did not arrive within {LIMIT_SECONDS:g} s at: {', '.join(missing)}"
        ) from None
    return [(watch, (at - committed) * 1e3) for watch, at in zip(watches, arrived, strict=True)]
