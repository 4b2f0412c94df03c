"""Claims about keys with limits, operators' tokens, recorded changes and the secret key, as an operator runs the commands."""

import asyncio
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from app import clock, crypto
from app.cli import key as key_commands
from app.cli import options
from app.cli.key import create_key
from app.db.pool import Database
from app.settings import Settings
from app.tenants import service as tenants
from app.webhooks import resealing
from app.webhooks.resealing import Sealed
from tests.cli.support import Run
from tests.webhooks.support import subscribe_and_emit

MODEL = "smollm2-135m-instruct"


def audit(settings: Settings) -> list[tuple[Any, ...]]:
    with psycopg.connect(settings.database_url) as conn:
        return conn.execute(
            "select act, target, account, body::json->>'role', body::json->>'reason' from audit order by audit_id"
        ).fetchall()


def test_a_key_is_made_with_limits_which_the_list_shows(run: Run) -> None:
    limits = ("--role", "submitter", "--model", MODEL, "--network", "10.1.0.0/16", "--endpoint", "/v1/embeddings")
    made = run("key", "create", "--account", "clinic", *limits, "--expires", "90d", "--restore", "--json")
    assert made.exit_code == 0, made.output
    [listed] = [each for each in json.loads(run("key", "list", "--json").output) if each["account"] == "clinic"]
    told = json.loads(made.output)
    assert (told["id"], told["role"]) == (listed["id"], "submitter")
    wanted = {"role": "submitter", "models": [MODEL], "networks": ["10.1.0.0/16"], "restore": True}
    assert (wanted | {"endpoints": ["/v1/embeddings"]}).items() <= listed.items()
    left = datetime.fromisoformat(listed["expires_at"]) - clock.now()
    assert timedelta(days=89) < left <= timedelta(days=90)
    assert "submitter" in run("key", "list").output


def test_a_key_is_a_submitter_unless_told(run: Run) -> None:
    for account, told in (("usual", ()), ("told", ("--role", "admin"))):
        assert run("key", "create", "--account", account, *told).exit_code == 0
    roles = {key["account"]: key["role"] for key in json.loads(run("key", "list", "--json").output)}
    assert roles | {"usual": "submitter", "told": "admin"} == roles


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "none"), "no such model 'none'"),
        (("--network", "10.0.0.1/8"), "networks: 10.0.0.1/8"),
        (("--endpoint", "chat"), "endpoints: 'chat'"),
        (("--expires", "soon"), "expires: 'soon'"),
        (("--expires", "9d", "--days", "9"), "say the same"),
    ],
)
def test_a_wrong_limit_is_named_and_nothing_is_made(run: Run, options: tuple[str, ...], message: str) -> None:
    refused = run("key", "create", "--account", "clinic", *options)
    assert refused.exit_code == 1
    assert message in refused.output
    assert "clinic" not in run("account", "list").output


def test_a_rotated_key_keeps_its_id_and_its_old_secret_for_the_overlap(run: Run, settings: Settings) -> None:
    old = create_key(settings, "clinic", "ward", None)
    key_id = old.split("_")[2]
    made = json.loads(run("key", "rotate", old, "--overlap", "2h", "--json").output)
    assert made["id"] == key_id
    assert made["key"].split("_")[2] == key_id
    assert made["key"] != old
    left = datetime.fromisoformat(made["old_until"]) - clock.now()
    assert timedelta(minutes=110) < left <= timedelta(hours=2)
    assert run("key", "rotate", "000000000000").exit_code == 1
    assert "up to 30d" in run("key", "rotate", old, "--overlap", "31d").output


def test_changes_on_the_database_are_recorded(run: Run, settings: Settings) -> None:
    run("account", "create", "clinic")
    run("account", "share", "clinic", "--weight", "2")
    run("account", "quota", "clinic", "--open-batches", "5", "--reason", "OPS-1")
    run("budget", "set", "month", "--max-cost", "5 USD", "--account", "clinic")
    run("account", "share", "clinic")
    found = [row for row in audit(settings) if row[2] == "clinic"]
    assert found == [
        ("account.create", "clinic", "clinic", "command line", None),
        ("account.share", "clinic", "clinic", "command line", None),
        ("quota.set", "clinic", "clinic", "command line", "OPS-1"),
        ("budget.set", "month", "clinic", "command line", None),
    ]


def test_once_there_are_operators_a_change_on_the_database_needs_a_reason(run: Run, settings: Settings) -> None:
    made = json.loads(run("operator", "create", "ann", "--expires", "30d", "--json").output)
    assert made["token"].startswith(f"sk_op_{made['id']}_")
    before = len(audit(settings))
    for command in (
        ("key", "create", "--account", "clinic"),
        ("account", "create", "clinic"),
        ("operator", "create", "eve"),
        ("operator", "revoke", made["id"]),
        ("console", "login"),
    ):
        refused = run(*command)
        assert refused.exit_code == 1, command
        assert "--reason" in refused.output
    assert len(audit(settings)) == before
    assert "clinic" not in run("account", "list").output
    assert run("key", "create", "--account", "clinic", "--reason", "OPS-2: laptop lost").exit_code == 0
    assert audit(settings)[-1][0::4] == ("key.create", "OPS-2: laptop lost")
    assert run("operator", "revoke", made["token"], "--reason", "left").exit_code == 0
    assert run("account", "create", "other").exit_code == 0
    assert "revoked" in run("operator", "list").output


def test_an_operators_token_lives_ninety_days_at_most(run: Run) -> None:
    refused = run("operator", "create", "ann", "--expires", "91d")
    assert refused.exit_code == 1
    assert "90 days at most" in refused.output
    assert run("operator", "create", "ann", "--role", "admin").exit_code == 1


def test_after_the_secret_key_was_changed_everything_works_with_the_new_one_alone(
    settings: Settings, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(subscribe_and_emit(settings, "http://127.0.0.1:9/"))
    key = create_key(settings, "clinic", "ward", None)
    old, new = settings.secret_key.get_secret_value(), "the next secret key, of 32 bytes or more"

    def use(**changes: str) -> crypto.MasterKey:
        changed = Settings(**settings.model_dump() | {"secret_key": new} | changes)
        for module in (key_commands, options):
            monkeypatch.setattr(module, "settings", lambda **_: changed)
        monkeypatch.setattr("app.cli.secret_key.settings", lambda: changed)
        return crypto.secret_key(changed)

    def works(master: bytes) -> bool:
        return _with(settings, lambda conn: tenants.authenticate(conn, master, key)) is not None

    alone = use()
    assert not works(alone)
    assert _with(settings, lambda conn: resealing.look(conn, alone)) == Sealed(unreadable=1)
    both = use(secret_key_accepted=old)
    assert both.others == (old.encode(),)
    status = run("secret-key", "status", "--json")
    assert status.exit_code == 1
    found = json.loads(status.output)
    assert (found["webhooks_of_others"], found["api_keys_of_others"] >= 1) == (1, True)
    assert works(both)
    assert run("secret-key", "reseal").exit_code == 0
    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        conn.execute("update api_key set revoked_at = now() where key_id <> %s", (key.split("_")[2],))
    after = run("secret-key", "status")
    assert after.exit_code == 0, after.output
    alone = use()
    assert works(alone)
    assert _with(settings, lambda conn: resealing.look(conn, alone)) == Sealed(current=1)


def _with(settings: Settings, verb: Callable[[Any], Any]) -> Any:
    async def call() -> Any:
        async with Database(settings.database_url, size=1) as database, database.durable() as conn:
            return await verb(conn)

    return asyncio.run(call())
