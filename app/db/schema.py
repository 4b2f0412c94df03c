"""Which code may work with which schema: the floor of the database ≤ the revision of the code ≤ the revision of the database.

A migration only adds, so code of the version before works with the newer schema, and an upgrade replaces one process after the
other. `slackwater migrate --contract` raises the floor once no older code runs; older code then refuses to work.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psycopg
from psycopg.rows import TupleRow

import migrations
from app.db.pool import Connection
from app.errors import SchemaMismatch

_READ = "select version_num, (select revision from schema_floor) from alembic_version"
_FLOOR = "select revision from schema_floor"
_EXISTS = "select to_regclass('alembic_version') is not null"
_REVISION = "select version_num, null from alembic_version"  # of a schema from before there was a floor
_RAISE = "update schema_floor set revision = %(own)s where revision < %(own)s returning revision"


@dataclass(frozen=True, slots=True)
class Schema:
    """What a database has. Revisions are four digits, in order. `revision`: None without a schema. `floor`: the oldest revision
    whose code may use it; None: it is from before there was a floor.
    """

    revision: str | None
    floor: str | None

    def problem(self, own: str) -> str | None:
        """Why code with the newest revision `own` cannot use this database. None: it can."""
        if self.revision is None or self.revision < own:
            has = f"at revision {self.revision}" if self.revision else "without a schema"
            return f"The database is {has}, this code needs {own}: run `slackwater migrate`"
        if self.floor is not None and own < self.floor:
            return (
                f"The database is closed to code below revision {self.floor}, and this code has {own}: "
                "install a newer version"
            )
        return None


@cache
def own_revision() -> str:
    """The newest revision in this code."""
    folder = Path(migrations.__file__).parent / "versions"
    return max(path.name[:4] for path in folder.glob("[0-9][0-9][0-9][0-9]_*.py"))


async def require(conn: Connection) -> None:
    """Raise SchemaMismatch unless this code may work with the database. Call in autocommit mode."""
    try:
        found = await (await conn.execute(_READ)).fetchone()
    except psycopg.errors.UndefinedTable:
        exists = await (await conn.execute(_EXISTS)).fetchone()
        found = await (await conn.execute(_REVISION)).fetchone() if exists == (True,) else None
    if problem := _of(found).problem(own_revision()):
        raise SchemaMismatch(problem)


async def floor(conn: Connection) -> str:
    """The oldest revision whose code may use the database; empty: it is from before there was a floor."""
    row = await (await conn.execute(_FLOOR)).fetchone()
    return str(row[0]) if row else ""


def read(conn: psycopg.Connection[TupleRow]) -> Schema:
    """What the database has. Call in autocommit mode."""
    try:
        return _of(conn.execute(_READ).fetchone())
    except psycopg.errors.UndefinedTable:
        exists = conn.execute(_EXISTS).fetchone() == (True,)
        return _of(conn.execute(_REVISION).fetchone() if exists else None)


def contract(url: str) -> bool:
    """Raise the floor to the revision of this code. False: it was there already, or above. Raises psycopg's errors."""
    with psycopg.connect(url) as conn:
        return conn.execute(_RAISE, {"own": own_revision()}).fetchone() is not None


def _of(row: TupleRow | None) -> Schema:
    return Schema(*row) if row else Schema(None, None)
