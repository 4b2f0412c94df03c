"""Migrate a database to the newest schema, and compare its schema with the code."""

from functools import cache
from pathlib import Path
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg import AsyncConnection
from sqlalchemy import Connection, NullPool, create_engine, text

import migrations
from app.db.metadata import metadata

_LOCK = 0x51AC_4A7E  # advisory lock: concurrent starters migrate one after the other


def upgrade(url: str, revision: str = "head") -> None:
    """Run every missing migration. Safe to call from several processes at once."""
    with _connect(url) as connection:
        connection.execute(text("select pg_advisory_lock(:key)"), {"key": _LOCK})
        connection.commit()
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        connection.commit()


def revisions(url: str) -> tuple[str | None, str | None]:
    """The revision of the database, and the newest revision in the code."""
    with _connect(url) as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    return current, newest_revision()


@cache
def newest_revision() -> str | None:
    """The newest revision in the code."""
    return ScriptDirectory.from_config(_config()).get_current_head()


async def current_revision(conn: AsyncConnection[Any]) -> str | None:
    """The revision of the database. None: it has no schema."""
    table = await (await conn.execute("select to_regclass('alembic_version')::text")).fetchone()
    if table is None or table[0] is None:
        return None
    row = await (await conn.execute("select version_num from alembic_version")).fetchone()
    return str(row[0]) if row else None


def drift(url: str) -> list[object]:
    """Differences between the database's schema and the tables in the code. Empty: they agree."""
    from migrations.names import is_schema

    with _connect(url) as connection:
        migration = MigrationContext.configure(connection, opts={"include_name": is_schema})
        return list(compare_metadata(migration, metadata))


def run_script(connection: Connection, sql: str) -> None:
    """Run a script of several statements unchanged. It has no parameters, so `%` has no special meaning."""
    driver = connection.connection.driver_connection
    assert driver is not None
    driver.execute(sql)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    return config


def _connect(url: str) -> Connection:
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1), poolclass=NullPool).connect()
