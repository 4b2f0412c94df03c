"""Which code may work with which schema: the floor of the database ≤ the revision of the code ≤ the revision of the database.

A migration only adds, so code of the version before works with the newer schema, and an upgrade replaces one process after the
other. `slackwater migrate --contract` raises the floor once no older code runs; older code then refuses to work.

Until the first release the baseline is edited in place, and nothing upgrades what it made before: such a database is refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

import migrations
from app.db.pool import Connection
from app.errors import SchemaMismatch
from migrations import baseline

# The oldest commits had no floor, and later ones no column of the baseline.
_READ = "select version_num, f.revision, coalesce(to_jsonb(f)->>'baseline', '') from alembic_version, schema_floor f"
_EXISTS = "select to_regclass('alembic_version') is not null"
_WITHOUT_FLOOR = "select version_num from alembic_version"
# Where the tables are, if a session's search_path does not lead to them.
_ELSEWHERE = """
select n.nspname::text, has_schema_privilege(n.oid, 'usage'), current_user::text, current_database()::text,
       current_setting('search_path')
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relname = 'schema_floor' and c.relkind = 'r' and not pg_table_is_visible(c.oid) order by n.nspname limit 1"""
_RAISE = "update schema_floor set revision = %(own)s where revision < %(own)s returning revision"
# The first migration makes the broker's schema, too.
_MAY_CREATE = """
select current_user::text, current_database()::text, current_schema()::text, current_setting('search_path'),
       coalesce(has_schema_privilege(current_schema(), 'create'), false),
       to_regclass('alembic_version') is not null or has_database_privilege(current_database(), 'create')"""
_PUBLIC = "public"
_LEAD = "alter role {role} in database {database} set search_path = {schema};"
_UNRELEASED = (
    "The database{named} was made by another commit, from before the first release of Slackwater, and there is no upgrade from "
    "it: start anew with another SLACKWATER_DATA_DIR and, where SLACKWATER_DATABASE_URL is set, an empty database"
)


@dataclass(frozen=True, slots=True)
class Schema:
    """What a database has. Revisions are four digits, in order. `revision`: None without a schema. `floor`: the oldest revision
    whose code may use it. `baseline`: the digest of the baseline that made it; empty: it is from before there were digests.
    `hidden`: why the role of the session does not see the tables that there are, and what mends it.
    """

    revision: str | None = None
    floor: str = ""
    baseline: str = ""
    hidden: tuple[str, str] | None = None

    def problem(self, own: str) -> str | None:
        """Why code with the newest revision `own` cannot use this database. None: it can."""
        if self.is_behind(own):
            has = f"at revision {self.revision}" if self.revision else "without a schema"
            return f"The database is {has}, this code needs {own}: run `slackwater migrate`"
        return self.refusal(own)

    def refusal(self, own: str, named: str = "") -> str | None:
        """Why not even a migration makes this database one for that code. None: it does, or is not needed. `named`: which it
        is, where that may be said.
        """
        if self.hidden is not None:
            return f"{self.hidden[0]}: {self.hidden[1]}"
        named = named and f" {named}"
        if self.is_unreleased:
            return _UNRELEASED.format(named=named)
        if own < self.floor:
            return (
                f"The database{named} is closed to code below revision {self.floor}, and this code has {own}: "
                "install a newer version"
            )
        return None

    def is_behind(self, own: str) -> bool:
        """Whether a migration to `own` is missing."""
        return self.hidden is None and not self.is_unreleased and (self.revision or "") < own

    @property
    def is_unreleased(self) -> bool:
        """Whether another edition of the baseline made it."""
        return self.revision is not None and self.baseline != baseline.digest()


@cache
def own_revision() -> str:
    """The newest revision in this code."""
    folder = Path(migrations.__file__).parent / "versions"
    return max(path.name[:4] for path in folder.glob("[0-9][0-9][0-9][0-9]_*.py"))


async def require(conn: Connection) -> None:
    """Raise SchemaMismatch unless this code may work with the database. Call in autocommit mode."""
    try:
        found = Schema(*await (await conn.execute(_READ)).fetchone() or ())
    except psycopg.errors.UndefinedTable:
        exists = await (await conn.execute(_EXISTS)).fetchone() == (True,)
        row = await (await conn.execute(_WITHOUT_FLOOR if exists else _ELSEWHERE)).fetchone()
        found = Schema(*row or ()) if exists else _unseen(row)
    if problem := found.problem(own_revision()):
        raise SchemaMismatch(problem)


def read(conn: psycopg.Connection[TupleRow]) -> Schema:
    """What the database has. A transaction of the connection may be rolled back."""
    try:
        return Schema(*conn.execute(_READ).fetchone() or ())
    except psycopg.errors.UndefinedTable:
        conn.rollback()
    exists = conn.execute(_EXISTS).fetchone() == (True,)
    row = conn.execute(_WITHOUT_FLOOR if exists else _ELSEWHERE).fetchone()
    return Schema(*row or ()) if exists else _unseen(row)


def _unseen(row: TupleRow | None) -> Schema:
    """What a session does not see, by _ELSEWHERE. None: there is nothing."""
    if row is None:
        return Schema()
    schema, usable, role, database, path = row
    why = f"lacks it: {path}" if usable else "does not count, as the role may not use that schema"
    problem = f"The tables are in the schema {schema}, and the search_path of the role {role} {why}"
    mends = _LEAD if usable else "grant usage on schema {schema} to {role};"
    return Schema(hidden=(problem, f"`{_command(mends, {'role': role, 'database': database, 'schema': schema})}`"))


def _command(text: str, names: Mapping[str, str]) -> str:
    """SQL with these names in quotes."""
    return sql.SQL(text).format(**{name: sql.Identifier(each) for name, each in names.items()}).as_string()


def lacking(conn: psycopg.Connection[TupleRow]) -> tuple[str, str] | None:
    """Why the role of this connection cannot migrate, and how that is corrected. None: it can."""
    row = conn.execute(_MAY_CREATE).fetchone()
    assert row is not None
    role, database, schema, path, tables, schemas = row
    if tables and schemas:
        return None
    commands = [] if schemas else ["grant create on database {database} to {role};"]
    problem = f"The role {role} may not make {'tables' if schemas else 'schemas'} in the database {database}"
    if schema is None and _PUBLIC not in re.findall(r"[^,\s\"]+", path):
        commands.append(_LEAD)
        problem = f"The search_path of the role {role} in the database {database} leads to no schema: {path}"
    elif not tables:
        commands.append("grant usage, create on schema {schema} to {role};")
    names = {"role": role, "schema": schema or _PUBLIC, "database": database}
    return problem, f"As an administrator, in that database: `{' '.join(_command(each, names) for each in commands)}`"


def contract(url: str) -> bool:
    """Raise the floor to the revision of this code. False: it was there already, or above. Raises psycopg's errors."""
    with psycopg.connect(url) as conn:
        return conn.execute(_RAISE, {"own": own_revision()}).fetchone() is not None
