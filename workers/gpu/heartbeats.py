"""Sends the heartbeats of all workers of a process together: one statement, whatever the number of its engines.

Engines without work report the same again and again. Storing that is half of what a heartbeat costs, so it is done seldom.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence

from app import clock
from app.db.pool import Database
from app.queue import heartbeat
from app.queue.heartbeat import Heartbeat, HeartbeatAnswer

REPORT_SECONDS = 10.0  # a report without news is stored again after this time
GATHER_SECONDS = 0.005  # heartbeats that are due at the same moment come within this time


class Heartbeats:
    """The heartbeats of one process. Their moments are common to its workers, and other processes have other ones."""

    def __init__(self, database: Database, *, every_seconds: float, lease_seconds: float) -> None:
        self._database = database
        self._every = every_seconds
        self._lease_seconds = lease_seconds
        self._phase = random.uniform(0, every_seconds)  # noqa: S311 - it spreads the load of a fleet
        self._waiting: dict[int, Heartbeat] = {}
        self._stored: dict[int, Heartbeat] = {}  # by worker id
        self._store_again = 0.0  # at this monotonic second
        self._sending: asyncio.Task[dict[int, HeartbeatAnswer]] | None = None  # to which others may still be added
        self._running: set[asyncio.Task[dict[int, HeartbeatAnswer]]] = set()

    async def close(self) -> None:
        """Wait for no answer any more. Call before the database is closed."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def next(self) -> float:
        """The monotonic second of the next common heartbeat."""
        now = clock.monotonic()
        return now + self._every - (now - self._phase) % self._every

    async def send(self, sent: Heartbeat) -> HeartbeatAnswer | None:
        """Send a heartbeat, together with those of other workers. None: the lease has lapsed.

        Raises database errors, and TimeoutError when the lease has lapsed before there is an answer.
        """
        self._waiting[sent.worker_id] = sent
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())
            self._running.add(self._sending)
            self._sending.add_done_callback(self._running.discard)
            self._sending.add_done_callback(_note_error)
        answers = await asyncio.shield(self._sending)
        return answers.get(sent.worker_id)

    async def _send_all(self) -> dict[int, HeartbeatAnswer]:
        await asyncio.sleep(GATHER_SECONDS)
        heartbeats, self._waiting, self._sending = list(self._waiting.values()), {}, None
        async with asyncio.timeout(self._lease_seconds), self._database.durable() as conn:
            news = self._have_news(heartbeats)
            answers = await heartbeat.send(conn, heartbeats, self._lease_seconds, news=news)
        self._note(heartbeats, answers, news=news)
        return answers

    def _have_news(self, heartbeats: Sequence[Heartbeat]) -> bool:
        """Whether reports must be stored. Those are forgotten then, because a failed statement may have stored them or not."""
        if clock.monotonic() < self._store_again and all(
            self._stored.get(each.worker_id) == each for each in heartbeats
        ):
            return False
        for each in heartbeats:
            self._stored.pop(each.worker_id, None)
        return True

    def _note(self, heartbeats: Sequence[Heartbeat], answers: Mapping[int, HeartbeatAnswer], *, news: bool) -> None:
        for each in heartbeats:
            answer = answers.get(each.worker_id)
            if answer is None or (each.report is not None and answer.intake is None):
                self._stored.pop(each.worker_id, None)
            elif news:
                self._stored[each.worker_id] = each
        if news:
            self._store_again = clock.monotonic() + REPORT_SECONDS


def _note_error(task: "asyncio.Task[dict[int, HeartbeatAnswer]]") -> None:
    """Those who wait get the error. If nobody waits any more, asyncio need not complain."""
    if not task.cancelled():
        task.exception()
