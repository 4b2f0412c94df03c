"""kombu's `pgmq` transport on our own database, with twelve fixes.

1. It connects with a libpq URL, so Unix sockets and TLS options work, and the pool checks its connections.
2. A worker that stops returns prefetched messages at once instead of after the visibility timeout.
3. A failed connection attempt leaves no pool with background threads behind.
4. A wait ends after half a second, so that a stop is noticed soon, and sleeps meanwhile.
5. One process at a time creates queues and their triggers: pgmq's DDL is not safe against itself.
6. Commits do not wait for the disk: a message is only a hint, and the rows that it names are durable.
7. A message whose acknowledgement fails frees its place. Otherwise an outage would use up all places for ever, and the channel
   would read nothing more, so that it would not even notice that it has lost its connection.
8. Celery connects again also where kombu has wrapped the error of an attempt to connect in its own. Otherwise it ends.
9. It also connects again where a queue is missing, and so creates it. Otherwise it ends, too.
10. The client loads no SQLAlchemy, which it does not use: 18 MB in each process.
11. Messages are looked for when the server says that one has come, and once a second. The connection is not checked before each
    look, which shows by itself whether it is lost.
12. A database that takes statements and does not answer is left after ten seconds. All of a broker's statements are short.
"""

import contextlib
import select
import sys
from collections.abc import Iterator
from queue import Empty
from time import monotonic
from typing import Any

import kombu.exceptions
import kombu.transport
import psycopg
from psycopg.abc import RV, PQGen
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool

for _client in ("pgmq.sqlalchemy_queue", "pgmq.sqlalchemy_async_queue"):
    sys.modules.setdefault(_client, None)  # type: ignore[arg-type]  # as if SQLAlchemy were not installed

from kombu.transport import pgmq  # noqa: E402
from pgmq import PGMQueue  # noqa: E402

from app.db.pool import SPARE_SECONDS  # noqa: E402

SCHEME = "slackwater-pgmq"
_POOL_SIZE = 6
_POOL_TIMEOUT_SECONDS = 5.0
_ANSWER_SECONDS = 10.0
_WAIT_SECONDS = 0.5
_LOOK_SECONDS = 1.0
_FULL_SECONDS = 0.05  # while the messages that were taken are being worked on


class Channel(pgmq.Channel):
    """A channel that returns the messages that it did not acknowledge."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]
        self.qos.restore_at_shutdown = True
        self._creating = False

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Delete the message. If that fails it comes again after the visibility timeout."""
        try:
            super().basic_ack(delivery_tag, multiple)  # type: ignore[no-untyped-call]
        except psycopg.Error:
            self.qos.ack(delivery_tag)
            raise

    def _new_queue(self, queue: str, **kwargs: Any) -> None:
        with self._ddl_lock():
            super()._new_queue(queue, **kwargs)  # type: ignore[no-untyped-call]

    def _maybe_enable_notify(self, queue: str, queue_name: str | None = None) -> None:
        with self._ddl_lock():
            super()._maybe_enable_notify(queue, queue_name)  # type: ignore[no-untyped-call]

    @contextlib.contextmanager
    def _ddl_lock(self) -> Iterator[None]:
        """Hold the lock that every process takes before it creates a queue on this broker."""
        if self._creating:
            yield
            return
        pool = self.pgmq.pool
        assert pool is not None
        with pool.connection() as conn, conn.transaction():
            conn.execute("select pg_advisory_xact_lock(hashtext('slackwater broker queues'))")
            self._creating = True
            try:
                yield
            finally:
                self._creating = False


class _Connection(psycopg.Connection[TupleRow]):
    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """As psycopg's, with a limit for those who give none."""
        try:
            return super().wait(gen, interval, _ANSWER_SECONDS if timeout is None else timeout)
        except psycopg.OperationalError:
            if timeout is None and self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.pgconn.finish()
            raise


class _Waiter(pgmq._NotifyWaiter):
    """Waits for notifications of new messages. psycopg itself would look ten times a second."""

    _conn: Any

    def wait(self, timeout: float | None) -> bool:
        """Whether a message has come within so many seconds, or the connection is lost."""
        with self._lock:
            if self._closed or not self._channels:
                return False
            self._ensure_conn()
            conn = self._conn
        ready = select.poll()
        ready.register(conn.fileno(), select.POLLIN)
        if not ready.poll(None if timeout is None else timeout * 1000):
            return False
        super().wait(0)  # take them all
        return True

    def _ensure_conn(self) -> None:
        if self._conn is None:
            conn = _Connection.connect(self._dsn, autocommit=True)
            for channel in self._channels:
                self._listen(conn, channel)
            self._conn = conn


class Transport(pgmq.Transport):
    """The transport behind `slackwater-pgmq://`; the database is `transport_options["dsn"]`."""

    Channel = Channel
    connection_errors = (  # type: ignore[assignment]
        *pgmq.Transport.connection_errors,
        kombu.exceptions.OperationalError,
        psycopg.errors.UndefinedTable,
        psycopg.errors.IdleInTransactionSessionTimeout,  # this process stood still
        psycopg.errors.ReadOnlySqlTransaction,  # the server is no longer the primary
    )
    _pool: ConnectionPool[Any] | None = None
    _look_at = 0.0  # the monotonic second of the next look without a notification

    @property
    def _options(self) -> dict[str, Any]:
        return self.client.transport_options  # type: ignore[union-attr, no-any-return]

    def drain_events(self, connection: Any, timeout: float | None = None, **_: Any) -> None:
        """Wait for messages, at most half a second. Raises `TimeoutError` if none arrives."""
        seconds = min(timeout or _WAIT_SECONDS, _WAIT_SECONDS)
        left = self._look_at - monotonic()
        if left > 0 and not self._get_notify_waiter().wait(min(left, seconds)) and left > seconds:
            raise TimeoutError
        try:
            cycle: Any = self.cycle
            cycle.get(self._deliver, timeout=seconds)
        except Empty:
            full = not all(channel.qos.can_consume() for channel in self.channels)
            self._look_at = monotonic() + (_FULL_SECONDS if full else _LOOK_SECONDS)
            raise TimeoutError from None
        self._look_at = 0.0  # there may be more

    def verify_connection(self, connection: Any) -> bool:
        """Whether there is one. The next statement shows whether it is lost."""
        return self._pool is not None

    def establish_connection(self) -> Any:
        """Open the pool and ask the server for its queues. On failure nothing stays open."""
        try:
            return super().establish_connection()  # type: ignore[no-untyped-call]
        except Exception:
            self._drop_client()
            raise

    def _create_pgmq_client(self) -> PGMQueue:
        pool: ConnectionPool[Any] = ConnectionPool(
            self._options["dsn"],
            connection_class=_Connection,
            min_size=1,
            max_size=_POOL_SIZE,
            timeout=_POOL_TIMEOUT_SECONDS,
            max_idle=SPARE_SECONDS,
            kwargs={
                "application_name": "slackwater broker",
                "options": "-c synchronous_commit=off",
                "autocommit": True,
            },
            check=ConnectionPool.check_connection,
            open=True,
        )
        self._pool = pool
        return PGMQueue(pool=pool, conn_string="", vt=self._options["visibility_timeout"], init_extension=False)

    def _get_notify_waiter(self) -> Any:
        if self._notify_waiter is None:
            self._notify_waiter = _Waiter(self._options["dsn"])
        return self._notify_waiter

    def close_connection(self, connection: Any) -> None:
        """Close the channels, then our pool, which kombu does not own."""
        try:
            super().close_connection(connection)
        finally:
            self._drop_client()

    def _drop_client(self) -> None:
        pool, self._pool, self._pgmq_client = self._pool, None, None
        if pool is not None:
            pool.close()


with contextlib.suppress(ImportError):  # if loguru is installed, pgmq logs every call to it
    from loguru import logger

    logger.disable("pgmq")

kombu.transport.TRANSPORT_ALIASES[SCHEME] = f"{__name__}:Transport"
