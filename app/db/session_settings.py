"""What the server has to be set to: what statements mean and how they are planned, and that nothing is lost which it has
confirmed.

Sessions cannot set it when they begin, since a pooler refuses or drops their options. So `slackwater migrate` sets it for the
role in the database, and each process reads it back when it starts.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from app.db.pool import Connection, Database
from app.db.transient_errors import TRANSIENT
from app.errors import ServerUnfit

# 5 s, half of a worker's lease as it ships: what a process has locked when it stops is free again before others lose theirs. It
# does not follow `lease_seconds`: a shorter lease may end first.
#
# Statements are planned once, for all parameters. A day's table that was vacuumed while it was empty looks cheap to read as a
# whole until it is analyzed; with `enable_seqscan` off its index is used from the first row on.
#
# The others are PostgreSQL's own defaults, on which statements and driver rely. An administrator may have changed them for the
# role, the database or the server.
OF_ROLE: Mapping[str, str] = MappingProxyType(
    {
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "jit": "off",
        "idle_in_transaction_session_timeout": "5s",
        "client_encoding": "UTF8",
        "DateStyle": "ISO, MDY",
        "IntervalStyle": "postgres",
        "TimeZone": "UTC",
        "default_transaction_isolation": "read committed",
        "default_transaction_read_only": "off",
        "array_nulls": "on",
        "extra_float_digits": "1",
        "row_security": "on",
        "idle_session_timeout": "0",
        "lock_timeout": "0",
        "statement_timeout": "0",
        "transaction_timeout": "0",  # from PostgreSQL 17 on
    }
)
ENCODING = "UTF8"
# What was confirmed survives a crash of the server, and its loss where there is a synchronous standby.
DURABILITY_SETTINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"synchronous_commit": ("on", "remote_apply"), "fsync": ("on",), "full_page_writes": ("on",)}
)

# A setting that this version of PostgreSQL does not have is left out.
_READ = """
select session_user::text, current_database()::text, array_agg(name), array_agg(current_setting(name))
from unnest(%(names)s::text[]) name where current_setting(name, true) is not null"""
_NAMES = {"names": [*OF_ROLE, *DURABILITY_SETTINGS, "server_encoding"]}
_SET_FOR = """
select coalesce((select s.setconfig from pg_db_role_setting s join pg_roles r on r.oid = s.setrole
  join pg_database d on d.oid = s.setdatabase where r.rolname = %s and d.datname = current_database()), '{}')"""


def of_server(conn: psycopg.Connection[TupleRow]) -> dict[str, str]:
    """Those of OF_ROLE that this version of PostgreSQL has."""
    has = read(conn).settings
    return {name: value for name, value in OF_ROLE.items() if name in has}


def adopt(conn: psycopg.Connection[TupleRow]) -> None:
    """Set them for this session, whose role may not have them yet."""
    own = of_server(conn)
    names = "select set_config(name, value, false) from unnest(%s::text[], %s::text[]) as own (name, value)"
    conn.execute(names, ([*own], [*own.values()]))


def apply(conn: psycopg.Connection[TupleRow], roles: Iterable[str]) -> None:
    """Set, in this database, what is not set yet for each role. It takes effect with the next connections of the role.

    Raises InsufficientPrivilege for other roles than one's own, unless one may create roles.
    """
    database, own = sql.Identifier(conn.info.dbname), of_server(conn)
    for role in roles:
        row = conn.execute(_SET_FOR, (role,)).fetchone()
        there = set(row[0]) if row else set()
        for name, value in own.items():
            if f"{name}={value}" not in there:
                names = {"role": sql.Identifier(role), "database": database, "name": sql.Identifier(name)}
                statement = sql.SQL("alter role {role} in database {database} set {name} = {value}")
                conn.execute(statement.format(**names, value=sql.Literal(value)))


@dataclass(frozen=True, slots=True)
class Reading:
    """The settings that a session of `role` in `database` has."""

    role: str
    database: str
    settings: Mapping[str, str]


def losing(found: Reading) -> tuple[str, str] | None:
    """Why the database may lose what it has confirmed, or cannot keep each character, and how that is corrected. None: nothing
    of it is so. Pure.
    """
    has = found.settings
    if (encoding := has["server_encoding"]) != ENCODING:
        return (
            f"The encoding of the database {found.database} is {encoding}, which has no place for every character",
            f"Make another with `create database NAME encoding '{ENCODING}' template template0;`, and name that one.",
        )
    if wrong := [name for name, good in DURABILITY_SETTINGS.items() if has[name] not in good]:
        return (
            f"The database may lose what it has confirmed: {', '.join(f'{name} = {has[name]}' for name in wrong)}",
            f"Set {', '.join(f'{name} = on' for name in wrong)} for the server and for the role {found.role}.",
        )
    return None


def problem(found: Reading) -> tuple[str, str] | None:
    """What is wrong with these settings, and how it is corrected. None: nothing. Pure."""
    if (loss := losing(found)) is not None:
        return loss
    has = found.settings
    if wrong := [name for name, value in OF_ROLE.items() if has.get(name, value) != value]:
        role, database = f'"{found.role}"', f'"{found.database}"'
        return (
            f"The database is not set for Slackwater: {', '.join(f'{name} = {has[name]}' for name in wrong)}",
            "Run `slackwater migrate` as the role of this process, or as an administrator "
            + " ".join(f"`alter role {role} in database {database} set {name} = '{OF_ROLE[name]}';`" for name in wrong)
            + " Then let a pooler reconnect (PgBouncer: `RECONNECT`).",
        )
    return None


def read(conn: psycopg.Connection[TupleRow]) -> Reading:
    """What the server says."""
    return _of(conn.execute(_READ, _NAMES).fetchone())


async def require(conn: Connection) -> None:
    """Raise ServerUnfit unless the server keeps what it confirms, and plans statements as they need it."""
    found = problem(_of(await (await conn.execute(_READ, _NAMES)).fetchone()))
    if found is not None:
        raise ServerUnfit(*found)


async def require_at_start(database: Database) -> None:
    """As `require`, for a part that starts without the database, too."""
    with suppress(TimeoutError, *TRANSIENT):
        async with database.relaxed() as conn:
            await require(conn)


def _of(row: TupleRow | None) -> Reading:
    assert row is not None
    role, database, names, values = row
    return Reading(role, database, dict(zip(names, values, strict=True)))
