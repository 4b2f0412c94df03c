"""Indexes that are built while others read and write the table. Every migration builds those of an existing table with `build`.

PostgreSQL builds no index of a partitioned table concurrently, so the parent gets one that is not valid yet (`ON ONLY`), each day
gets its own (`CONCURRENTLY`), and the day's is attached to the parent's; with the last one the parent's is valid. Days that are
created meanwhile have the index from the start. https://www.postgresql.org/docs/current/ddl-partitioning.html

What was killed in the middle can be run again: it goes on, and drops an index that was left unfinished.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg
from alembic import op
from psycopg.rows import TupleRow

_PARTITIONED = "select relkind = 'p' from pg_class where oid = %s::regclass"
_UNFINISHED = "select not indisvalid from pg_index where indexrelid = to_regclass(%s)"
_DAYS_WITHOUT = """
select day.relname from pg_inherits part join pg_class day on day.oid = part.inhrelid
where part.inhparent = %(table)s::regclass and not part.inhdetachpending
  and not exists (
    select from pg_index own join pg_inherits attached on attached.inhrelid = own.indexrelid
    where own.indrelid = day.oid and attached.inhparent = %(name)s::regclass)
order by day.relname"""


@dataclass(frozen=True, slots=True)
class Index:
    """An index by its name, which begins with that of its table. `of`: columns and condition, `(batch_id, seq) WHERE ok = 0`."""

    name: str
    table: str
    of: str
    unique: bool = False

    def statement(self, how: str, *, name: str = "", table: str = "") -> str:
        """The statement that creates it, or the one of a day. `how`: CONCURRENTLY or nothing."""
        kind = "UNIQUE INDEX" if self.unique else "INDEX"
        words = ["CREATE", kind, how, "IF NOT EXISTS", name or self.name, "ON", table or self.table, self.of]
        return " ".join(word for word in words if word)

    def of_day(self, day: str) -> str:
        """The name of a day's index."""
        return day + self.name.removeprefix(self.table)


def build(*indexes: Index) -> None:
    """Build indexes in a migration. Whatever the migration did before is committed first, so that must bear a repetition: a
    migration begins with `build`, or only with columns that are added IF NOT EXISTS.
    """
    with op.get_context().autocommit_block():
        for index in indexes:
            if op.get_context().as_sql:
                op.get_context().impl.static_output(index.statement("CONCURRENTLY") + ";")
            else:
                driver = op.get_bind().connection.driver_connection
                assert isinstance(driver, psycopg.Connection)
                build_on(driver, index)


def build_on(conn: psycopg.Connection[TupleRow], index: Index) -> None:
    """Build an index on a connection in autocommit mode. Raises LockNotAvailable after its `lock_timeout`: repeat it then."""
    if conn.execute(_PARTITIONED, [index.table]).fetchone() != (True,):
        _build_beside(conn, index, index.name, index.table)
        return
    conn.execute(index.statement("", table=f"ONLY {index.table}").encode())
    while days := conn.execute(_DAYS_WITHOUT, {"table": index.table, "name": index.name}).fetchall():
        for (day,) in days:
            with suppress(psycopg.errors.UndefinedTable):  # retention has dropped the day
                _build_beside(conn, index, index.of_day(day), day)
                conn.execute(f"ALTER INDEX {index.name} ATTACH PARTITION {index.of_day(day)}".encode())


def _build_beside(conn: psycopg.Connection[TupleRow], index: Index, name: str, table: str) -> None:
    with _patient(conn):
        if conn.execute(_UNFINISHED, [name]).fetchone() == (True,):
            conn.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}".encode())
        conn.execute(index.statement("CONCURRENTLY", name=name, table=table).encode())


@contextmanager
def _patient(conn: psycopg.Connection[TupleRow]) -> Iterator[None]:
    """Wait for other transactions for as long as they last, because what is built concurrently holds up nobody meanwhile."""
    before = conn.execute("show lock_timeout").fetchone()
    assert before is not None
    conn.execute("set lock_timeout = 0")
    try:
        yield
    finally:
        with suppress(psycopg.OperationalError):  # the connection is lost
            conn.execute("select set_config('lock_timeout', %s, false)", before)
