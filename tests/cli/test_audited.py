"""No change without its audit row, and no row without its change: every command on a database that refuses either."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from app import crypto
from app.audit.acts import Act
from app.db.pool import Database
from app.settings import Settings
from app.webhooks import registration
from app.webhooks.url_check import CheckedUrl
from tests.audit import surfaces
from tests.audit.refusals import Refusing
from tests.cli.support import Run

RULES = '[[rule]]\nid = "{}"\nwhen = {{ workflow = "draft" }}\ndeny = "no"\n'
COMMANDS = (
    "account create elm",
    "account share elm --weight 2",
    "account retention elm 90",
    "account webhook-hosts elm .example.com",
    "account quota elm --open-items 5",
    "budget set month --account elm --max-tokens 5",
    "budget rm month --account elm",
    "key create --account elm --name x",
    "key rotate {key} --overlap 1h",
    "key revoke {key}",
    "account delete elm --yes",
    "operator create ann",
    "operator revoke {token} --reason enough",
    "policy apply {folder}/one.toml --reason enough",
    "policy apply {folder}/two.toml --reason enough",
    "policy rollback --reason enough",
    "console login --as eve --reason enough",
    "console revoke {session} --reason enough",
    "engine drain east-1 --no-wait",
    "engine undrain east-1",
    "secret-key reseal --reason enough",
)


def words(command: str) -> str:
    """The command without its arguments."""
    return next(name for name in surfaces.COMMANDS if command == name or command.startswith(f"{name} "))


def fill(settings: Settings) -> None:
    """An engine, a session, and a webhook whose secret is sealed under the former secret key."""

    async def subscribe() -> None:
        async with Database.of(settings, "test") as database, database.transaction() as conn:
            tenant_id = (await (await conn.execute("select tenant_id from tenant")).fetchall())[0][0]
            former = crypto.master_keys(settings, former=True)
            await registration.create(
                conn,
                key=former,
                tenant_id=tenant_id,
                account_id="oak",
                name="x",
                url=CheckedUrl("http://127.0.0.1:9/x"),
                kinds=["batch.queued"],
            )

    with psycopg.connect(settings.database_url) as conn:
        conn.execute("insert into tenant (account_id, name) values ('oak', 'oak')")
        conn.execute("insert into pool (model) values ('m')")
        conn.execute(
            "insert into engine (name, pool_id, url, mode, state, reason)"
            " select 'east-1', pool_id, 'http://x', 'managed', 'ready', '' from pool"
        )
        conn.execute(
            "insert into console_session (hash, subject, role, expires_at)"
            " values ('x', 'eve', 'operator', now() + interval '1 hour')"
        )
    asyncio.run(subscribe())
