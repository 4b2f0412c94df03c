"""Claims about commands that work on the database, run as an operator runs them."""

import json
from datetime import datetime, timedelta

import psycopg
import pytest

from app import clock
from app.cli import engine
from app.cli.key import create_key, has_key, list_keys, revoke_key
from app.settings import Settings
from app.tenants import service as tenants
from app.user_errors import Failure
from tests.cli.support import TERMINAL, Run, slackwater


def test_keys_are_made_listed_and_revoked(settings: Settings) -> None:
    made = slackwater(settings, "key", "create", "--account", "acme", "--name", "laptop")
    key = made.stdout.strip()
    assert made.returncode == 0
    assert key.startswith("sk_sw_")
    listed = slackwater(settings, "key", "list").stdout
    assert "acme" in listed
    assert "laptop" in listed
    assert key.rpartition("_")[2] not in listed
    assert slackwater(settings, "key", "revoke", key).returncode == 0
    assert "revoked" in slackwater(settings, "key", "list").stdout
    again = slackwater(settings, "key", "revoke", key)
    assert again.returncode == 1
    assert "no live key" in again.stderr
    assert "Traceback" not in again.stderr


def test_only_a_live_key_of_the_account_counts(settings: Settings) -> None:
    create_key(settings, "demo", "of the demo", 1)
    assert not has_key(settings, "local")
    key = create_key(settings, "local", "first", None)
    assert has_key(settings, "local")
    revoke_key(settings, key)
    assert not has_key(settings, "local")
    create_key(settings, "local", "short", 1)
    with psycopg.connect(settings.database_url) as conn:
        conn.execute("update api_key set expires_at = now() - interval '1 second' where name = 'short'")
    assert not has_key(settings, "local")
    assert [key.state(clock.now()) for key in list_keys(settings)].count("expired") == 1


def test_a_keys_state_says_why_it_does_not_work() -> None:
    now, day = clock.now(), timedelta(days=1)
    key = tenants.KeyInfo("id", "acme", "name", now - day, None, None, None)
    assert key.state(now) == "live"
    expired = tenants.KeyInfo("id", "acme", "name", now - day, None, now, None)
    assert expired.state(now - day) == "live"
    assert expired.state(now) == "expired"
    assert tenants.KeyInfo("id", "acme", "name", now, None, now, now).state(now) == "revoked"


def test_a_keys_name_is_no_markup(run: Run, settings: Settings) -> None:
    create_key(settings, "acme", "[/b]x", None)
    assert "\t[/b]x\t" in run("key", "list").output
    refused = run("key", "revoke", "[/x]")
    assert refused.exit_code == 1
    assert "no live key [/x]" in refused.output


def test_keys_are_listed_as_json(run: Run) -> None:
    run("key", "create", "--account", "other", "--name", "laptop", "--days", "1", "--requests", "60")
    [mine] = [key for key in json.loads(run("key", "list", "--json").output) if key["account"] == "other"]
    assert datetime.fromisoformat(mine["expires_at"]) > datetime.fromisoformat(mine["created_at"])
    told = {"name": "laptop", "state": "live", "last_used_at": None, "requests_per_minute": 60}
    assert told.items() <= mine.items()
    assert mine["tokens_per_minute"] is None


def test_key_ids_are_whole_on_a_terminal_of_80_columns(run: Run, key: str) -> None:
    lines = run("key", "list", env=TERMINAL).output.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(key.split("_")[2] in line for line in lines)


@pytest.mark.parametrize("days", ["0", "-3", "99999999999"])
def test_a_lifetime_out_of_range_is_refused(settings: Settings, days: str) -> None:
    answer = slackwater(settings, "key", "create", "--days", days)
    assert answer.returncode == 2
    assert "days" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("account", ["", "a/b c", "x" * 65, "a\n", "ü"])
def test_an_account_must_fit_into_a_url(settings: Settings, account: str) -> None:
    with pytest.raises(Failure, match="account: "):
        create_key(settings, account, "name", None)


def test_the_state_of_the_engine_is_told(settings: Settings) -> None:
    assert engine.reported_state(settings) == ""
    with psycopg.connect(settings.database_url) as conn:
        conn.execute("insert into pool (model) values ('m')")
        conn.execute(
            "insert into engine (name, pool_id, url, mode, state, reason)"
            " select %s, pool_id, 'http://x', 'managed', 'down', 'engine_down' from pool",
            (settings.engine_name,),
        )
    assert engine.reported_state(settings) == ""
    with psycopg.connect(settings.database_url) as conn:
        conn.execute(
            "with w as (insert into worker (pool_id, host, pid, lease_until)"
            " select pool_id, 'h', 1, now() + interval '1 hour' from pool returning worker_id)"
            " update engine set worker_id = w.worker_id from w"
        )
    assert engine.reported_state(settings) == "starting"


def test_an_unreachable_database_is_said_in_two_lines(settings: Settings) -> None:
    nowhere = settings.model_copy(update={"database_url": "postgresql://nobody@127.0.0.1:1/none"})
    answer = slackwater(nowhere, "key", "list")
    assert answer.returncode == 1
    assert "cannot be reached" in answer.stderr
    assert "SLACKWATER_DATABASE_URL" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_an_accounts_retention_is_set_and_taken_back(settings: Settings) -> None:
    create_key(settings, "acme", "first", None)
    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        for arguments, stored, said in ((["90"], 90, "90 days"), (["7"], 7, "30 days"), ([], None, "30 days")):
            done = slackwater(settings, "account", "retention", "acme", *arguments)
            assert (done.returncode, said in done.stdout) == (0, True), done
            assert conn.execute("select retention_days from tenant").fetchone() == (stored,)
    unknown = slackwater(settings, "account", "retention", "nobody", "5")
    assert unknown.returncode == 1
    assert "no account nobody" in unknown.stderr
