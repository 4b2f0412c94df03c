"""Claims about the migration that makes the console's audit rows the first rows of the audit log, and back."""

from collections.abc import Iterator

import psycopg
import pytest
from alembic import command
from alembic.config import Config

from app.audit import check, checkpoints, log, sealing
from app.db import embedded, migrate
from app.db.pool import Database
from app.settings import Settings
from app.storage.store import Store

_ROWS = """
insert into console_audit (at, subject, role, session_id, account, action, target, outcome, reason, detail) values
  ('2026-11-01 12:00:00.000007+00', 'ada "the first"', 'admin', 7, 'acme', 'item.reveal', 'b/1', 'done', 'asked: "why"', null),
  ('2026-11-02 12:00:00+00', 'büşra', 'operator', null, null, 'webhook.replay', 'w', 'no', null, '{"only_failed": true}')"""
_KEPT = """
select at, subject, role, session_id, account, action, target, outcome, reason, detail from console_audit order by audit_id"""


@pytest.fixture
def old_url(server_settings: Settings) -> Iterator[str]:
    """A database with the console's audit table and two rows in it."""
    admin = embedded.database_url(server_settings)
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute("create database before_the_audit_log")
        url = admin.replace("/postgres?", "/before_the_audit_log?")
        migrate.upgrade(url, "0033")
        with psycopg.connect(url) as old:
            old.execute(_ROWS)
        yield url
        conn.execute("drop database before_the_audit_log with (force)")


async def test_what_the_console_has_recorded_is_kept_and_sealed(old_url: str, settings: Settings) -> None:
    migrate.upgrade(old_url, "0034")
    async with Database(old_url, size=1) as database:
        await sealing.seal(database)
        async with database.relaxed() as conn:
            second, first = await log.latest(conn)
            found = await check.verify(conn, Store.of(settings), checkpoints.known_keys(settings))
    assert (found.rows, found.problems) == (2, [])
    assert (first.who, first.reason, first.act, first.account) == (
        'ada "the first"',
        'asked: "why"',
        "item.reveal",
        "acme",
    )
    assert first.at.microsecond == 7
    assert (second.who, second.account, second.after, second.seq) == ("büşra", None, {"only_failed": True}, 1)


def test_going_back_keeps_the_rows(old_url: str) -> None:
    with psycopg.connect(old_url) as conn:
        before = conn.execute(_KEPT).fetchall()
    migrate.upgrade(old_url, "0034")
    with migrate._connect(old_url) as connection:
        config: Config = migrate._config()
        config.attributes["connection"] = connection
        command.downgrade(config, "0033")
        connection.commit()
    with psycopg.connect(old_url) as conn:
        assert conn.execute(_KEPT).fetchall() == before
        with pytest.raises(psycopg.errors.RaiseException):
            conn.execute("delete from console_audit")
