"""A database that refuses either every audit row or every change: what does one without the other becomes visible.

A refusal comes when the audit row is written, or when the transaction of a change commits.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import structlog.testing

_SCRIPT = """
create table refusing (what text);
create table changed (name text);
create function refuse() returns trigger language plpgsql as $$
begin
  if exists (select from refusing where what = tg_argv[0]) then raise exception 'refused by a test: %', tg_argv[0]; end if;
  if tg_argv[0] = 'changes' and new is distinct from old then insert into changed values (tg_table_name); end if;
  return coalesce(new, old);
end $$;
create trigger refuse before insert on audit for each row execute function refuse('rows');
"""
_CHANGES = """
create constraint trigger refuse after insert or update or delete on {table} deferrable initially deferred
for each row execute function refuse('changes')"""
_TABLES = """
select relname from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace"""
_LOG = {"audit", "audit_pending", "audit_seal", "audit_checkpoint", "refusing", "changed"}
# What is written beside a request, such as counts of its key.
_ASIDE = {"key_usage", "line", "request_sample", "usage_writer", "change", "pool", "alembic_version", "object_store"}


class Refusing:
    """Of one database, whose audit log it watches."""

    def __init__(self, url: str) -> None:
        self._conn = psycopg.connect(url, autocommit=True)
        self._conn.execute(_SCRIPT)
        tables = {str(name) for (name,) in self._conn.execute(_TABLES)} - _LOG - _ASIDE
        self._conn.execute(";".join(_CHANGES.format(table=table) for table in tables).encode())

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Refuse `rows` of the audit log, or `changes` of all other tables."""
        self._conn.execute("insert into refusing values (%s)", (what,))
        try:
            with structlog.testing.capture_logs():  # to print a traceback takes longer than the rest
                yield
        finally:
            self._conn.execute("delete from refusing")

    def changed(self) -> set[str]:
        """The tables but the log in which rows came, went or changed since the last question."""
        return {str(name) for (name,) in self._conn.execute("delete from changed returning name")}

    def acts(self, after: int = 0) -> list[str]:
        """The acts of the rows after this number, in their order, without refusals of access."""
        text = "select act from audit where audit_id > %s and act not in ('access.refused', 'session.refused') order by audit_id"
        return [str(act) for (act,) in self._conn.execute(text, (after,))]

    def newest(self) -> int:
        """The number of the newest row."""
        return int(str(self.value("select coalesce(max(audit_id), 0) from audit")))

    def execute(self, statement: str) -> None:
        """Run a statement."""
        self._conn.execute(statement.encode())

    def close(self) -> None:
        """End the connection."""
        self._conn.close()

    def value(self, statement: str) -> object:
        """The first value that a statement returns."""
        row = self._conn.execute(statement.encode()).fetchone()
        assert row
        return row[0]
