"""A connection of a pool. It sends each statement on the terms of its borrower, and watches over commits which must last."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from operator import attrgetter
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from psycopg import AsyncCursor, AsyncPipeline, AsyncTransaction, Error, OperationalError, errors, pq
from psycopg.abc import Params, PQGen, QueryNoTemplate
from psycopg.errors import Diagnostic
from psycopg.rows import Row
from psycopg.sql import Composable
from psycopg.waiting import Ready, Wait

from app.db.durability import DURABLE, Terms, changes
from app.db.watched_connection import WatchedConnection

_IDLE, _IN_ERROR = pq.TransactionStatus.IDLE, pq.TransactionStatus.INERROR


class NotConfirmed(OperationalError):
    """A durable commit is on the server's disk, but the server has stopped to wait for the standby that should have it too.

    It may be lost with the server, so it counts as failed. It may be repeated, as after a lost connection.
    """


class AtCommit(Protocol):
    """What a transaction sends together with its commit. `statements` are asked for at that moment. Those of a lower `rank` are
    sent before, so that all transactions lock tables in one order.
    """

    rank: int

    def statements(self) -> Sequence[tuple[str, Params]]: ...


Last = TypeVar("Last", bound=AtCommit)


class PooledConnection(WatchedConnection):
    """In autocommit mode. `terms` hold for what the borrower sends; the pool sets them."""

    terms: Terms = DURABLE
    used_at = 0.0  # the time of its last use
    patience_seconds: float | None = None  # for the answer to a durable commit; None: as long as it takes
    warning: str | None = None  # the server's last one
    watched = False  # whether a durable commit is on its way

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cursor_factory = _Cursor
        self._last: dict[type[Any], AtCommit] = {}
        ours = weakref.ref(self)  # a handler that refers to the connection would keep it open when it is forgotten
        self.add_notice_handler(lambda diagnostic: _note(ours(), diagnostic))

    @asynccontextmanager
    async def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> AsyncIterator[AsyncTransaction]:
        """As psycopg's. A transaction that is not inside of another one begins with the terms, and ends with its last statements
        and the commit in one message.
        """
        outermost = self.idle
        if outermost:
            self._last.clear()
        with _Watch(self) as watch:
            async with AsyncExitStack() as ending, super().transaction(savepoint_name, force_rollback) as transaction:
                if outermost and self.terms.begin:
                    await self.execute(self.terms.begin)
                yield transaction
                if outermost and self.terms.waits:
                    watch.begin()
                if outermost and self._last:
                    await ending.enter_async_context(self._whole_or_nothing())
                    for last in sorted(self._last.values(), key=attrgetter("rank")):
                        for statement in last.statements():
                            await self.execute(*statement)

    def at_commit(self, kind: type[Last]) -> Last:
        """The last statements of this kind of the open transaction, made when they are first asked for.

        A row that others wait for is changed by such statements, so that nobody waits for it while this process, or its host,
        has stopped between two statements. What is added to it in a savepoint stays when that is rolled back. Raises
        RuntimeError outside of a transaction.
        """
        if self.idle:
            raise RuntimeError("it needs a transaction")
        last = self._last.setdefault(kind, kind())
        assert isinstance(last, kind)
        return last

    @asynccontextmanager
    async def _whole_or_nothing(self) -> AsyncIterator[None]:
        """A pipeline up to the end of a transaction, which is rolled back if one of the statements fails."""
        try:
            async with self.pipeline():
                yield
        except Exception:
            if self.pgconn.transaction_status == _IN_ERROR:
                await self.rollback()
            raise

    @asynccontextmanager
    async def pipeline(self) -> AsyncIterator[AsyncPipeline]:
        """As psycopg's, but all of it is sent at its end, as one message: nothing may be fetched before."""
        self._pipeline = self._pipeline or _Pipeline(self)
        async with super().pipeline() as pipeline:
            yield pipeline

    async def give_up(self, gen: PQGen[Any]) -> None:
        """As a watched connection does, but a request to cancel a durable commit would do harm: the server would stop to wait for
        its standby, and commit.
        """
        if self.watched:
            self.cut()
        else:
            await super().give_up(gen)

    @property
    def idle(self) -> bool:
        """Whether no transaction is open, so that the next statement is one by itself."""
        return self.pgconn.transaction_status == _IDLE


class _Pipeline(AsyncPipeline):
    """It is sent as one message, which ends with its Sync. psycopg 3.3 sends each statement by itself, and after the Sync a
    Flush, to which no answer comes: if PgBouncer reads that once it has taken the server's connection back, it takes another one,
    and keeps it.
    """

    def _communicate_gen(self) -> PQGen[None]:
        yield from ()

    def _exit_gen(self) -> PQGen[None]:
        self._enqueue_sync()
        while self.command_queue:
            self.command_queue.popleft()()  # into libpq's buffer, which leaves with the Sync
        try:
            yield from super()._communicate_gen()
            yield from self._flush_gen()
        except Error:
            with suppress(Error):  # those of the statements after the one that failed
                yield from self._fetch_gen(flush=False)
            raise
        yield from self._fetch_gen(flush=False)

    def _flush_gen(self) -> PQGen[None]:
        """Send what the socket did not take yet: psycopg waits for the answer to a large parameter without."""
        while self.pgconn.flush():
            ready = yield Wait.RW
            if ready & Ready.R:
                self.pgconn.consume_input()


class _Cursor(AsyncCursor[Row]):
    async def execute(  # type: ignore[override]
        self,
        query: QueryNoTemplate,
        params: Params | None = None,
        *,
        prepare: bool | None = None,
        binary: bool | None = None,
    ) -> Self:
        connection = self.connection
        assert isinstance(connection, PooledConnection)
        terms, alone, text = connection.terms, connection.idle, _text(query)
        try:
            if alone and terms.precede(text):
                async with connection.pipeline():  # up to its end the server commits nothing
                    await AsyncCursor(connection).execute(terms.ahead)
                    return await super().execute(query, params, prepare=prepare, binary=binary)
            with _Watch(connection) as watch:
                if alone and terms.waits and changes(text):
                    watch.begin()
                return await super().execute(query, params, prepare=prepare, binary=binary)
        except errors.ReadOnlySqlTransaction:
            if not terms.always:  # the server has become a standby: the next connection looks for the primary
                await connection.close()
            raise


def _text(query: QueryNoTemplate) -> str:
    if isinstance(query, Composable):
        return query.as_string()
    return query.decode() if isinstance(query, bytes) else query


def _note(connection: PooledConnection | None, diagnostic: Diagnostic) -> None:
    if connection is not None and diagnostic.severity_nonlocalized == "WARNING":
        connection.warning = diagnostic.message_primary


class _Watch:
    """Watches over one durable commit, from `begin` to the end of the block."""

    __slots__ = ("_connection", "_timer", "_watching")

    def __init__(self, connection: PooledConnection) -> None:
        self._connection = connection
        self._timer: asyncio.TimerHandle | None = None
        self._watching = False

    def begin(self) -> None:
        """The commit is about to be sent."""
        connection = self._connection
        connection.warning, connection.watched, self._watching = None, True, True
        if (seconds := connection.patience_seconds) is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, connection.drop, seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raises NotConfirmed if the server warned."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watching:
            self._connection.watched = False
        if self._watching and kind is None and self._connection.warning is not None:
            raise NotConfirmed(self._connection.warning)
