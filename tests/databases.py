"""One embedded PostgreSQL for each test process, and a ring of migrated databases on it that tests use one after the other.

A database that a test gives back is emptied by one statement over the tables that have rows. Where a test has changed the schema,
its revision or its floor, or left statistics or much data behind, its database is dropped, and the next test gets a copy of the
template.
"""

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from app.db import embedded, migrate, session_settings
from app.db.pool import Database
from app.queue import partitions
from app.settings import Settings
from testing import clusters
from tests import kept_connections, next_revision

EXPANDED = "TESTS_ON_EXPANDED_SCHEMA"  # set: every test runs on a schema newer than the code
TEMPLATE = "template_slackwater"
KEPT_BYTES = 1 << 19  # of one table; emptying more takes longer than a copy of the template

_OWN = """
n.nspname not like 'pg\\_%' and n.nspname <> 'information_schema'"""
_LEAVE = """
select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and not pid = any (%s) and backend_type = 'client backend'"""
# What a test may change beside rows.
_SHAPE = f"""
select
  (select md5(string_agg(concat(n.nspname, '.', c.relname, c.relkind, c.reloptions::text, c.relnatts, c.relacl::text), ','
     order by n.nspname, c.relname)) from pg_class c join pg_namespace n on n.oid = c.relnamespace where {_OWN}),
  (select md5(string_agg(concat(p.proname, md5(p.prosrc)), ',' order by p.proname, p.prosrc))
     from pg_proc p join pg_namespace n on n.oid = p.pronamespace where {_OWN}),
  (select md5(string_agg(concat(tgname, tgenabled), ',' order by tgname)) from pg_trigger where not tgisinternal),
  (select count(*) from pg_constraint), (select count(*) from pg_attrdef), (select count(*) from pg_statistic s
     join pg_class c on c.oid = s.starelid join pg_namespace n on n.oid = c.relnamespace where {_OWN}),
  (select string_agg(s.setconfig::text, ',') from pg_db_role_setting s join pg_database d on d.oid = s.setdatabase
     where d.datname = current_database())"""
_LARGEST = f"""
select coalesce(max(pg_relation_size(c.oid)), 0) from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r' and {_OWN}"""
# `replica`: neither triggers nor foreign keys, which forbid some deletions and order the others.
_EMPTY = f"""
set session_replication_role = replica;
do $$ declare kept record; begin
  for kept in select c.oid::regclass as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind = 'r' and pg_relation_size(c.oid) > 0 and not c.oid::regclass::text = any (string_to_array('{{seeded}}', ' '))
      and {_OWN} loop
    execute 'delete from only ' || kept.name;
  end loop;
  perform setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
    from pg_sequences where last_value is not null;
end $$"""


class Ring:
    """Databases that are like new, by name. They are made when all others are in use."""

    def __init__(self, settings: Settings) -> None:
        self._admin_url = embedded.database_url(settings)
        self._numbers = itertools.count()
        self._free: list[str] = []
        self._open: dict[str, psycopg.Connection] = {}  # a new connection would have to read all of the catalogue again
        self._see()

    def url(self, name: str) -> str:
        """The URL of a database of the server."""
        return self._admin_url.replace("/postgres?", f"/{name}?")

    def administer(self, statement: str) -> None:
        """Run a statement on the server. A test may have stopped it since the last one, so each has its own connection."""
        with psycopg.connect(self._admin_url, autocommit=True) as conn:
            conn.execute(statement.encode())

    @contextmanager
    def taken(self) -> Iterator[str]:
        """The URL of a database for a block."""
        name = self._free.pop() if self._free else self._made()
        try:
            yield self.url(name)
        finally:
            if self._emptied(name):
                self._free.append(name)
            else:
                self._open.pop(name).close()
                kept_connections.end(self.url(name))
                self.administer(f"drop database if exists {name} with (force)")

    def _made(self) -> str:
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        self.administer(f"create database {name} template {TEMPLATE} strategy file_copy")  # half the time of `wal_log`
        self._open[name] = psycopg.connect(self.url(name), autocommit=True)
        kept_connections.begin(self.url(name))
        return name

    def _see(self) -> None:
        """Remember the shape and the rows of a copy, and what empties it again: all tables but those that have rows now.

        The template itself differs: settings of a database are not copied.
        """
        name = self._made()
        self._free.append(name)
        conn = self._open[name]
        found = conn.execute(
            f"""select c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
            where c.relkind = 'r' and pg_relation_size(c.oid) > 0 and {_OWN}""".encode()
        ).fetchall()
        seeded = [table for (table,) in found]
        self.version = str(conn.info.parameter_status("server_version")).split()[0]
        self._empty = _EMPTY.format(seeded=" ".join(seeded))
        self._read_seeds = "select " + ", ".join(f"(select jsonb_agg(t) from {table} t)" for table in seeded)
        self._seeds = conn.execute(self._read_seeds.encode()).fetchone()
        self._shape = conn.execute(_SHAPE.encode()).fetchone()

    def _emptied(self, name: str) -> bool:
        """Whether it is like new again. False: it has to be dropped."""
        conn = self._open[name]
        try:
            conn.execute(_LEAVE, [kept_connections.pids(self.url(name))])
            (largest,) = conn.execute(_LARGEST.encode()).fetchone() or (0,)
            if largest > KEPT_BYTES or conn.execute(_SHAPE.encode()).fetchone() != self._shape:
                return False
            if conn.execute(self._read_seeds.encode()).fetchone() != self._seeds:
                return False
            conn.execute(self._empty.encode())
        except psycopg.OperationalError:  # the test has ended it
            return False
        return True


@pytest.fixture(scope="session")
def server_settings() -> Iterator[Settings]:
    """Settings of this process's own embedded server, stopped and deleted at the end."""
    with clusters.folder() as folder:
        settings = Settings(data_dir=folder)
        embedded.start(settings)
        with psycopg.connect(embedded.database_url(settings), autocommit=True) as conn:
            for name, value in session_settings.of_server(conn).items():  # a copy of the template has none of its own
                conn.execute(f"alter role current_user set {name} = '{value}'".encode())
            conn.execute("alter system set max_wal_size = '256MB'")  # it may lie in memory
            conn.execute("select pg_reload_conf()")
        yield settings
        embedded.stop(settings, "immediate")


@pytest.fixture(scope="session")
def ring(server_settings: Settings) -> Ring:
    """The databases of this process."""
    admin = embedded.database_url(server_settings)
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute(f"create database {TEMPLATE}".encode())
    url = admin.replace("/postgres?", f"/{TEMPLATE}?")
    migrate.upgrade(url)
    asyncio.run(_partitions(url))
    if os.environ.get(EXPANDED):
        _expand(url)
    return Ring(server_settings)


def _expand(url: str) -> None:
    """Give each table a column more, as the next version may: no statement may notice."""
    with psycopg.connect(url) as conn:
        for (table,) in conn.execute(next_revision.TABLES.encode()).fetchall():
            conn.execute(f"alter table {table} add column only_the_next_version text default 'added'".encode())


async def _partitions(url: str) -> None:
    async with Database(url, size=1) as database, database.transaction() as conn:
        await partitions.create(conn, days_ahead=2)


@pytest.fixture
def database_url(ring: Ring) -> Iterator[str]:
    """URL of a migrated database without rows."""
    from tests.other_postgres import KIND  # as plug-ins these are loaded after this file
    from tests.ran_on import met

    with ring.taken() as url:
        met(f"PostgreSQL {ring.version}, {KIND}")
        yield url


@pytest.fixture
def stoppable_server(server_settings: Settings, database_url: str) -> Iterator[Settings]:
    """Settings as they ship, on a database of the process's server. The test may stop it; afterwards it runs again."""
    yield server_settings.model_copy(update={"database_url": database_url})
    embedded.start(server_settings)


@pytest.fixture
def administer(ring: Ring) -> Callable[[str], None]:
    """Runs a statement on the process's server."""
    return ring.administer
