"""Creates the database's roles, one for each part, and grants each of them what `role_grants` says, and nothing else. Their
sessions get the settings that statements need.

The role of reports can be bound to some accounts, by row-level security. It stands on no table that COPY writes, since PostgreSQL
refuses that, and off where the role is not bound, so that other roles, such as one that makes backups, notice nothing.

The roles log in without a password until one is set. They belong to the server, the grants to this database. Safe to repeat.
"""

import hashlib
from collections.abc import Iterator, Sequence

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from app.db import session_settings
from app.db.role_grants import BROKER, DAILY, GRANTS, PRIVILEGES, REPORT, ROWS_OF_ACCOUNTS, STEWARD, RoleGrants

EVERY_ACCOUNT = "*"
_COLUMN_RIGHTS = "raw"  # deleting has no columns


def apply(url: str, report_accounts: str = EVERY_ACCOUNT) -> list[str]:
    """Create the roles and set their grants, in one transaction. Returns their names. Raises psycopg's errors.

    `report_accounts`: the accounts whose rows the role of reports reads, with commas; `EVERY_ACCOUNT`: all.
    """
    with psycopg.connect(url) as conn:
        for role in (*GRANTS, BROKER):
            _create(conn, role)
        _hand_over(conn)
        for role, grants in GRANTS.items():
            for statement in _statements(conn, role, grants):
                conn.execute(statement)
        session_settings.apply(conn, GRANTS)
        bound = None if report_accounts == EVERY_ACCOUNT else [name.strip() for name in report_accounts.split(",")]
        for table in ROWS_OF_ACCOUNTS:
            _bind(conn, table, bound)
    return [*GRANTS, BROKER]


def _bind(conn: psycopg.Connection[TupleRow], table: str, accounts: Sequence[str] | None) -> None:
    """Bind the role of reports to the rows of these accounts; None: to none. Nothing is locked that is so already."""
    wanted = {} if accounts is None else _policies(table, accounts)
    there = {
        str(name) for (name,) in conn.execute("select polname from pg_policy where polrelid = %s::regclass", (table,))
    }
    if there == wanted.keys():
        return
    of = sql.Identifier(table)
    for name in there - wanted.keys():
        conn.execute(sql.SQL("drop policy {} on {}").format(sql.Identifier(name), of))
    for name in wanted.keys() - there:
        conn.execute(sql.SQL("create policy {} on {} {}").format(sql.Identifier(name), of, wanted[name]))
    verb = sql.SQL("enable" if wanted else "disable")
    conn.execute(sql.SQL("alter table {} {} row level security").format(of, verb))


def _policies(table: str, accounts: Sequence[str]) -> dict[str, sql.Composable]:
    """The policies of a table, by names that tell whether they are still right.

    A policy that is `true` costs a part nothing. Whether a role is none of reports is asked once for each statement.
    """
    parts = sql.SQL(", ").join(sql.Identifier(role) for role in GRANTS if role != REPORT)
    report, names = sql.Identifier(REPORT), sql.Literal(list(accounts)) + sql.SQL("::text[]")
    rows = sql.SQL(ROWS_OF_ACCOUNTS[table]).format(accounts=names)
    none_of_reports = sql.SQL("(select not pg_has_role({}, 'member'))").format(sql.Literal(REPORT))
    every = sql.SQL("using ({0}) with check ({0})")
    found = {
        "parts": sql.SQL("to {} ").format(parts) + every.format(sql.SQL("true")),
        "others": sql.SQL("to public ") + every.format(none_of_reports),
        "reports": sql.SQL("for select to {} using ({})").format(report, rows),
    }
    return {f"{name}_{_digest(policy)}": policy for name, policy in found.items()}


def _digest(policy: sql.Composable) -> str:
    return hashlib.sha256(policy.as_string(None).encode()).hexdigest()[:12]


def are_used(url: str) -> bool:
    """Whether this database has been handed over to the roles."""
    owner = "select pg_get_userbyid(relowner) from pg_class where oid = to_regclass(%s)"
    with psycopg.connect(url) as conn:
        return conn.execute(owner, (DAILY[0],)).fetchone() == (STEWARD,)


def _create(conn: psycopg.Connection[TupleRow], role: str) -> None:
    names = {"role": sql.Identifier(role)}
    if conn.execute("select from pg_roles where rolname = %s", (role,)).fetchone() is None:
        conn.execute(sql.SQL("create role {role} login").format(**names))
    conn.execute(sql.SQL("grant {role} to current_user").format(**names))
    database = sql.Identifier(conn.info.dbname)
    conn.execute(sql.SQL("grant connect on database {database} to {role}").format(database=database, **names))


def _hand_over(conn: psycopg.Connection[TupleRow]) -> None:
    """Make the steward the owner of the tables whose days it creates and drops, and the broker's role the owner of its queues."""
    steward, broker = sql.Identifier(STEWARD), sql.Identifier(BROKER)
    conn.execute(sql.SQL("grant usage, create on schema public to {}").format(steward))
    for table in (*DAILY, *(day for parent in DAILY for day in _days(conn, parent))):
        conn.execute(sql.SQL("alter table {} owner to {}").format(sql.Identifier(table), steward))
    if conn.execute("select to_regnamespace('pgmq')").fetchone() == (None,):
        return
    conn.execute(sql.SQL("alter schema pgmq owner to {}").format(broker))
    queues = (
        "select relname, relkind from pg_class where relnamespace = 'pgmq'::regnamespace and relkind in ('r', 'p', 'v')"
    )
    for name, kind in conn.execute(queues).fetchall():
        what = sql.SQL("view" if kind == "v" else "table")
        conn.execute(sql.SQL("alter {} pgmq.{} owner to {}").format(what, sql.Identifier(name), broker))


def _statements(conn: psycopg.Connection[TupleRow], role: str, grants: RoleGrants) -> Iterator[sql.Composed]:
    """What takes every right to tables from a role, and gives it those that it has."""
    name = sql.Identifier(role)
    yield sql.SQL("revoke all on all tables in schema public from {}").format(name)
    yield sql.SQL("revoke all on all functions in schema public from {}").format(name)
    yield sql.SQL("grant usage on schema public to {}").format(name)
    yield sql.SQL("grant select on alembic_version, schema_floor to {}").format(name)
    yield sql.SQL("grant usage on all sequences in schema public to {}").format(name)
    if grants.sees_sessions:
        yield sql.SQL("grant pg_read_all_stats to {}").format(name)
    for table, rights in grants.tables.items():
        hidden = grants.hidden.get(table, ())
        seen = [column for column in _columns(conn, table) if column not in hidden]
        for right in rights:
            of = seen if hidden and right in _COLUMN_RIGHTS else ()
            yield _grant(right, (table, *(_days(conn, table) if table in DAILY else ())), name, of)
    for table, some in grants.columns.items():
        for right, columns in some.items():
            yield _grant(right, (table,), name, columns)
    for function in grants.functions:
        yield sql.SQL("grant execute on function {} to {}").format(sql.Identifier(function), name)


def _grant(right: str, tables: Sequence[str], role: sql.Identifier, columns: Sequence[str]) -> sql.Composed:
    names = [sql.Identifier(column) for column in columns]
    listed = sql.SQL(" ({})").format(sql.SQL(", ").join(names)) if names else sql.SQL("")
    what = sql.SQL(PRIVILEGES[right])
    on = sql.SQL(", ").join(map(sql.Identifier, tables))
    return sql.SQL("grant {}{} on {} to {}").format(what, listed, on, role)


def _days(conn: psycopg.Connection[TupleRow], parent: str) -> list[str]:
    """The tables of the days of a table. Statements name them, so their rights are those of the table."""
    found = "select inhrelid::regclass::text from pg_inherits where inhparent = %s::regclass"
    return [str(day) for (day,) in conn.execute(found, (parent,)).fetchall()]


def _columns(conn: psycopg.Connection[TupleRow], table: str) -> list[str]:
    found = "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped order by attnum"
    return [str(column) for (column,) in conn.execute(found, (table,)).fetchall()]
