"""Migrate a database to the newest schema."""

from pathlib import Path
from typing import Any

import psycopg
import structlog
from alembic import command, op
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_fixed, wait_random_exponential
from tenacity import retry_if_result as until

import migrations
from app.causes import cause
from app.db import direct, schema, session_settings
from app.errors import SchemaMismatch, ServerUnfit

LOCK_TIMEOUT = (
    "2s"  # whoever comes after a migration that waits for a lock waits behind it, so it does not wait for longer
)
PATIENCE_SECONDS = 300.0
HEAD = "head"  # alembic's word for the newest revision
_MIGRATES = 0x51AC_4A7E  # advisory lock: concurrent starters migrate one after the other
_LOCKED = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
_LONGEST = """
select format('%s (pid %s, for %s s)', coalesce(nullif(application_name, ''), usename), pid,
              extract(epoch from now() - xact_start)::int)
from pg_stat_activity
where datname = current_database() and xact_start is not null and pid <> pg_backend_pid()
order by xact_start limit 3"""

log = structlog.get_logger("migrate")


class MigrationBlocked(Exception):
    """Other transactions held a lock that a migration needs for all of its patience. What it had done until then is kept."""

    remedy = "End those transactions (`select pg_terminate_backend(PID)`), and run `slackwater migrate` again."


def upgrade(url: str, revision: str = HEAD, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Run every missing migration, and set for the role of `url` in this database what its sessions need. Safe to call from
    several processes at once, and again after it was killed.

    A migration that does not get a lock within LOCK_TIMEOUT lets others pass and is tried again. A newer schema is left as it is.
    A new database, which no older code uses, is closed to older code at once.
    Raises MigrationBlocked; SchemaMismatch if this code is too old for the database, or the database is from before the first
    release; ServerUnfit if the server loses what it confirms, or the role may not make tables; BehindPooler.
    """
    attempts = Retrying(
        retry=retry_if_exception(_is_locked),
        wait=wait_random_exponential(0.2, max=5),
        stop=stop_after_delay(patience_seconds),
        before_sleep=_report,
        reraise=True,
    )
    try:
        attempts(_upgrade, url, revision)
    except (DBAPIError, *_LOCKED) as error:
        if not _is_locked(error):
            raise
        with _connect(url) as connection:
            longest = ", ".join(connection.execute(text(_LONGEST)).scalars()) or "none now"
        reason = f"The database cannot be migrated: a lock was not free within {patience_seconds:.0f} s. Transactions: {longest}."
        raise MigrationBlocked(reason) from error


def _upgrade(url: str, revision: str) -> None:
    with _connect(url) as connection:
        session_settings.adopt(_driver(connection))
        connection.commit()
        direct.check(_driver(connection))
        # Whoever waits inside of PostgreSQL holds a snapshot, for which an index that is built concurrently waits in turn.
        Retrying(retry=until(lambda got: not got), wait=wait_fixed(0.2))(_lock, connection)
        found, own = schema.read(_driver(connection)), schema.own_revision()
        connection.commit()
        info = _driver(connection).info
        if problem := found.refusal(own, f"{info.dbname} at {info.host}"):
            raise SchemaMismatch(problem)
        if found.is_behind(own):
            _require_fit(_driver(connection))
        connection.execute(text("select set_config('lock_timeout', :limit, false)"), {"limit": LOCK_TIMEOUT})
        session_settings.apply(_driver(connection), [connection.execute(text("select session_user")).scalar_one()])
        connection.commit()
        if (found.revision or "") > own:
            return
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        connection.commit()
        if found.revision is None and revision == HEAD:
            schema.contract(url)


def _require_fit(conn: psycopg.Connection[Any]) -> None:
    if (unfit := session_settings.losing(session_settings.read(conn)) or schema.lacking(conn)) is not None:
        raise ServerUnfit(*unfit)


def _lock(connection: Connection) -> bool:
    got = connection.execute(text("select pg_try_advisory_lock(:key)"), {"key": _MIGRATES}).scalar_one()
    connection.commit()
    return bool(got)


def _is_locked(error: BaseException) -> bool:
    return isinstance(error.orig if isinstance(error, DBAPIError) else error, _LOCKED)


def _report(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    log.warning("migration.waits", attempt=state.attempt_number, error=cause(error) if error else "")


def revisions(url: str) -> tuple[str | None, str | None]:
    """The revision of the database, and the newest revision in the code."""
    with _connect(url) as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    return current, ScriptDirectory.from_config(_config()).get_current_head()


def run_script(connection: Connection, sql: str) -> None:
    """Run a script of several statements in a migration, unchanged: it has no parameters, so `%` has no special meaning.

    With `alembic upgrade --sql`, print it.
    """
    if op.get_context().as_sql:
        op.get_context().impl.static_output(sql)
        return
    _driver(connection).execute(sql)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    return config


def _driver(connection: Connection) -> psycopg.Connection[Any]:
    driver: psycopg.Connection[Any] | None = connection.connection.driver_connection
    assert driver is not None
    return driver


def _connect(url: str) -> Connection:
    """SQLAlchemy's parser does not know URLs with several hosts, so libpq reads the URL."""
    return create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool).connect()
