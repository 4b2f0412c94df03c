"""Claims about `slackwater account …`. Of the other commands only `key create` creates an account, with a message."""

import json
import os
import pty
import subprocess
import sys
import uuid

import psycopg
import pytest

from app.cli.account import close_account, create_account
from app.cli.key import create_key, has_key
from app.environment import child_environment
from app.settings import Settings
from app.user_errors import Failure
from testing.waiting import LIMIT_SECONDS
from tests.cli.support import slackwater


def states(settings: Settings) -> dict[str, str]:
    with psycopg.connect(settings.database_url) as conn:
        return dict(conn.execute("select account_id, state from tenant").fetchall())


def test_an_account_is_made_listed_shown_and_deleted(settings: Settings) -> None:
    made = slackwater(settings, "account", "create", "acme")
    assert (made.returncode, made.stderr) == (0, "")
    assert "slackwater key create --account acme" in made.stdout
    key = slackwater(settings, "key", "create", "--account", "acme")
    assert key.stderr == ""
    assert "acme" in slackwater(settings, "account", "list").stdout
    (listed,) = json.loads(slackwater(settings, "account", "list", "--json").stdout)
    shown = json.loads(slackwater(settings, "account", "show", "acme", "--json").stdout)
    assert shown == listed
    counts = {"keys": 1, "webhooks": 0, "files": 0, "batches": 0, "open_batches": 0}
    assert {"account_id": "acme", "state": "active"} | counts | shown == shown
    assert shown["created_at"].endswith("+00:00")
    gone = slackwater(settings, "account", "delete", "acme", "--yes")
    assert gone.returncode == 0, gone.stderr
    assert states(settings) == {"acme": "closing"}
    assert "closing" in slackwater(settings, "account", "show", "acme").stdout


def test_who_changes_an_account_can_have_it_as_it_is_then_as_json(settings: Settings) -> None:
    made = json.loads(slackwater(settings, "account", "create", "acme", "--json").stdout)
    kept = json.loads(slackwater(settings, "account", "retention", "acme", "400", "--json").stdout)
    bound = json.loads(slackwater(settings, "account", "webhook-hosts", "acme", "example.com", "--json").stdout)
    assert (made["account_id"], made["retention_days"], made["webhook_hosts"]) == ("acme", None, None)
    assert (kept["retention_days"], bound["webhook_hosts"]) == (400, ["example.com"])


def test_only_key_create_makes_an_account_by_the_way_and_says_so(settings: Settings) -> None:
    made = slackwater(settings, "key", "create", "--account", "new")
    assert made.stdout.startswith("sk_sw_")
    assert len(made.stdout.split()) == 1  # what a script takes is the key alone
    assert made.stderr == "Account new did not exist; it was created for this key.\n"
    for command in (("show", "nope"), ("delete", "nope", "--yes"), ("share", "nope"), ("retention", "nope", "9")):
        answer = slackwater(settings, "account", *command)
        assert answer.returncode == 1
        assert "There is no account nope" in answer.stderr
    assert states(settings) == {"new": "active"}


def test_an_account_is_made_once_and_its_name_fits_into_a_url(settings: Settings) -> None:
    create_account(settings, "acme")
    with pytest.raises(Failure, match="Account acme exists already"):
        create_account(settings, "acme")
    with pytest.raises(Failure, match="must be 1 to 64 letters"):
        create_account(settings, "a/b")


def batch(settings: Settings) -> None:
    with psycopg.connect(settings.database_url) as conn:
        conn.execute(
            "insert into batch (batch_id, request_id, tenant_id, model, endpoint, total, deadline)"
            " select 1, %s, tenant_id, 'm', '/v1/x', 1, now() from tenant",
            (uuid.uuid4(),),
        )


def test_without_a_terminal_and_without_yes_nothing_is_deleted_and_what_would_be_is_told(settings: Settings) -> None:
    create_key(settings, "acme", "name", None)
    batch(settings)
    answer = slackwater(settings, "account", "delete", "acme")
    assert answer.returncode == 1
    assert "Account acme has 1 key, 0 webhooks, 0 files and 1 batch (1 open)." in answer.stderr
    assert "--yes" in answer.stderr
    assert states(settings) == {"acme": "active"}
    assert has_key(settings, "acme")


@pytest.mark.parametrize(("typed", "state"), [("n\n", "active"), ("y\n", "closing")])
def test_in_a_terminal_it_asks(settings: Settings, typed: str, state: str) -> None:
    create_key(settings, "acme", "name", None)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "app.cli.main", "account", "delete", "acme"]
    with subprocess.Popen(
        command, env=child_environment(settings, {}), stdin=theirs, stdout=subprocess.PIPE
    ) as process:
        os.write(ours, typed.encode())
        output = process.communicate(timeout=LIMIT_SECONDS)[0].decode()
    os.close(ours)
    os.close(theirs)
    assert "Delete all of it?" in output
    assert states(settings) == {"acme": state}
    assert has_key(settings, "acme") == (state == "active")


def test_an_account_that_is_being_deleted_takes_nothing_new(settings: Settings) -> None:
    create_account(settings, "acme")
    close_account(settings, "acme")
    answer = slackwater(settings, "key", "create", "--account", "acme")
    assert answer.returncode == 1
    assert "Account acme is being deleted" in answer.stderr
    assert "slackwater account list" in answer.stderr
    with pytest.raises(Failure, match="exists already"):
        create_account(settings, "acme")
