"""What the commits of changes to a table have waited for, as the server saw it."""

from typing import Any

from app.db.pool import Connection

_WATCH = """
create table if not exists seen (change text, waits text);
create or replace function see() returns trigger language plpgsql as
  $$begin insert into seen values (tg_op || ' ' || tg_argv[0], current_setting('synchronous_commit')); return null; end$$;
create constraint trigger see after {changes} on {table} deferrable initially deferred
  for each row execute function see('{table}')"""


async def watch(conn: Connection, table: str, changes: str = "insert or update or delete") -> None:
    """From now on, note the setting at the end of each transaction that changes a row of this table."""
    await conn.execute(_WATCH.format(table=table, changes=changes).encode())


async def seen(conn: Connection) -> set[tuple[Any, ...]]:
    """(change and table, the value of `synchronous_commit` when it was committed)."""
    return set(await (await conn.execute("select change, waits from seen")).fetchall())
