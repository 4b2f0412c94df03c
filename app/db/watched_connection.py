"""A connection that notices that its server, or a proxy on the way, takes what is sent and never answers.

A statement may run for as long as it needs. When nothing has come or gone for a while, the server is asked by a new connection
whether it runs that statement. If it does not, or does not answer either, the connection is dropped, and whoever waits gets an
OperationalError. `keepalive` is for hosts that do not even acknowledge; what is silent here may acknowledge everything.

A process of the server that froze in the middle of a statement counts as running it.
"""

import asyncio
import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any, Self

import structlog
from psycopg import AsyncConnection, Error, errors, pq, waiting
from psycopg.abc import RV, PQGen
from psycopg.rows import TupleRow

QUIET_SECONDS = 5.0  # half of a worker's lease
ANSWER_SECONDS = 5.0  # for the answer of a server that is asked
CANCEL_SECONDS = 2.0  # for a statement to end that nobody waits for any more

# What waits for its client does not run.
_RUNNING = """
select pg_backend_pid(), coalesce(array_agg(pid), '{}'),
  coalesce(array_agg(extract(epoch from clock_timestamp() - xact_start)::float8), '{}'),
  current_setting('track_activities')::bool
from pg_stat_activity where usename = session_user and datname = current_database() and pid <> pg_backend_pid()
  and state = 'active' and wait_event_type is distinct from 'Client'"""
# Who is refused when it connects learns no error code. In another language this counts as no answer.
_FULL = re.compile("too many|connection slots|no more connections")
log = structlog.get_logger(__name__)


def quiet_seconds(lease_seconds: float) -> float:
    """For how long a server may be quiet before it is asked."""
    return lease_seconds / 2


@dataclass(frozen=True, slots=True)
class Running:
    """What a server runs for our role: the seconds since the begin of each transaction, by the server's process. `pooled`: a
    pooler is in between, so that we do not know which processes are ours.
    """

    seconds: Mapping[int, float]
    pooled: bool = False

    def may_have(self, pid: int, waited: float) -> bool:
        """Whether the statement that we sent to this process, and have waited for so many seconds, may be among them."""
        if self.pooled:
            return any(seconds >= waited / 2 for seconds in self.seconds.values())
        return pid in self.seconds


class Inquiry:
    """Asks one server, by a connection of its own, what it runs. Those who want to know at the same time share the answer."""

    def __init__(self, url: str, seconds: float) -> None:
        self.seconds = seconds
        self._url = url
        self._suspects: set[WatchedConnection] = set()
        self._asking: asyncio.Task[None] | None = None

    def suspect(self, conn: "WatchedConnection") -> None:
        """Find out whether the server still works on what is waited for, and tell the connection. May be called again."""
        self._suspects.add(conn)
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        try:
            while self._suspects:
                suspects, self._suspects = self._suspects, set()
                asked_at, running = monotonic(), await self._running()
                for conn in suspects:
                    conn.judge(asked_at, running)
                self._suspects -= suspects
        finally:
            self._asking = None

    async def _running(self) -> Running | None:
        """None: it answers, but does not say."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await _running(self._url)
        except (OSError, Error) as error:
            return None if _FULL.search(str(error)) else Running({})


class WatchedConnection(AsyncConnection[TupleRow]):
    """`inquiry` asks its server; None: it waits for as long as it takes."""

    inquiry: Inquiry | None = None
    _moved_at = inf  # when something last came or went; inf: nobody waits
    _kept_at = 0.0  # that, or when the server last said that it works on it

    @classmethod
    async def to(cls, url: str, quiet: float = QUIET_SECONDS, **options: Any) -> Self:
        """A connection in autocommit mode that no pool has. `quiet`: see `quiet_seconds`."""
        conn = await cls.connect(url, autocommit=True, **options)
        conn.inquiry = Inquiry(url, quiet)
        return conn

    async def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:  # noqa: ASYNC109
        """As psycopg's. Raises OperationalError if the server has fallen silent."""
        watched = self._watch(gen)
        try:
            return await waiting.wait_async(watched, self.pgconn.socket, interval=interval, timeout=timeout)
        except asyncio.CancelledError:
            await self.give_up(watched)
            raise
        finally:
            watched.close()  # whoever holds the traceback would keep it, until another wait

    def _watch(self, gen: PQGen[RV]) -> PQGen[RV]:
        """`gen`, watched from where it waits."""
        result: RV
        try:
            wanted = next(gen)
            self._moved_at = self._kept_at = monotonic()
            while True:
                ready = yield wanted
                if ready:
                    self._moved_at = self._kept_at = monotonic()
                elif self.inquiry is not None and monotonic() - self._kept_at >= self.inquiry.seconds:
                    self.inquiry.suspect(self)
                wanted = gen.send(ready)
        except StopIteration as end:
            result = end.value
            return result
        finally:
            self._moved_at = inf

    def judge(self, asked_at: float, running: Running | None) -> None:
        """`running`: what the server ran at that time. Drop the connection if nothing of it is what we have waited for since."""
        if self._moved_at >= asked_at:
            return
        if running is None or running.may_have(self.info.backend_pid, asked_at - self._moved_at):
            self._kept_at = monotonic()
        else:
            self.drop(round(monotonic() - self._moved_at, 1))

    async def give_up(self, gen: PQGen[Any]) -> None:
        """End a statement that nobody waits for any more, or else the connection."""
        if self.pgconn.transaction_status != pq.TransactionStatus.ACTIVE:
            return
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await self.cancel_safe(timeout=CANCEL_SECONDS)
                await waiting.wait_async(gen, self.pgconn.socket, interval=CANCEL_SECONDS)
        except errors.QueryCanceled:
            pass
        except (TimeoutError, Error):
            self.pgconn.finish()
        except asyncio.CancelledError:
            self.pgconn.finish()
            raise

    def cut(self) -> None:
        """End the connection, if it has not ended yet, without a word to the server. Whoever waits gets an OperationalError."""
        with suppress(OSError), socket.socket(fileno=os.dup(self.pgconn.socket)) as same:
            same.shutdown(socket.SHUT_RDWR)

    def drop(self, seconds: float | None) -> None:
        """Cut the connection to a server that has not answered for so many seconds."""
        self.cut()
        log.warning("database.no_answer", host=self.info.host, seconds=seconds)


class _Asking(AsyncConnection[TupleRow]):
    async def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:  # noqa: ASYNC109
        """As psycopg's, but whoever is cancelled goes at once."""
        return await waiting.wait_async(gen, self.pgconn.socket, interval=interval, timeout=timeout)


async def _running(url: str) -> Running | None:
    conn = await _Asking.connect(url, autocommit=True, application_name="slackwater look")
    try:
        [(own, pids, seconds, tells)] = await (await conn.execute(_RUNNING)).fetchall()
        return Running(dict(zip(pids, seconds, strict=True)), own != conn.info.backend_pid) if tells else None
    finally:
        await conn.close()
