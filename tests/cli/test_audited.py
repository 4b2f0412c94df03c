"""No change without its audit row, and no row without its change: every command on a database that refuses either."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr

from app.db.pool import Database
from app.settings import Settings
from app.webhooks import registration
from app.webhooks.url_check import CheckedUrl
from tests.audit import surfaces
from tests.audit.refusals import Refusing
from tests.cli.support import Run

FORMER = "the former secret key, of 32 bytes or more"
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
    "restored --reason enough",
)


def words(command: str) -> str:
    """The command without its arguments."""
    return next(name for name in surfaces.COMMANDS if command == name or command.startswith(f"{name} "))


def fill(settings: Settings) -> None:
    """An engine, a worker, a session, and a webhook whose secret is sealed under the former secret key."""

    async def subscribe() -> None:
        async with Database.of(settings, "test") as database, database.transaction() as conn:
            tenant_id = (await (await conn.execute("select tenant_id from tenant")).fetchall())[0][0]
            await registration.create(
                conn,
                key=FORMER.encode(),
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
            "insert into worker (pool_id, host, pid, lease_until) select pool_id, 'h', 1, now() + interval '1 hour' from pool"
        )
        conn.execute(
            "insert into console_session (hash, subject, role, expires_at)"
            " values ('x', 'eve', 'operator', now() + interval '1 hour')"
        )
    asyncio.run(subscribe())


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"secret_key_accepted": SecretStr(FORMER)})


@pytest.fixture
def refusing(settings: Settings) -> Iterator[Refusing]:
    fill(settings)
    made = Refusing(settings.database_url)
    yield made
    made.close()


def test_the_commands_are_those_of_the_table() -> None:
    assert {words(command) for command in COMMANDS} == surfaces.COMMANDS.keys()


@pytest.mark.holds_accounts  # `restored` runs before the parts start
def test_what_a_command_changes_and_its_row_are_one(local: Run, refusing: Refusing, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text(RULES.format(name))
    ids = {"folder": str(tmp_path), "session": str(refusing.value("select max(session_id) from console_session"))}
    for command in COMMANDS:
        refusing.changed()
        newest = refusing.newest()
        for what in ("rows", "changes"):
            with refusing.of(what):
                refused = local(*command.format(**ids).split())
            assert refused.exit_code != 0, (what, command, refused.output)
            assert refusing.acts(newest) == [], f"{command}: a row without its change"
            assert refusing.changed() == set(), f"{command}: a change without its row"
        done = local(*command.format(**ids).split())
        assert done.exit_code == 0, (command, done.output)
        assert refusing.acts(newest) == [str(act) for act in surfaces.COMMANDS[words(command)]], command
        assert refusing.changed(), command
        if made := re.search(r"sk_(sw|op)_([0-9a-f]+)_", done.output):
            ids["key" if made[1] == "sw" else "token"] = made[2]
