"""Claims about `slackwater restored`. What it does to the rows is in tests/batches/test_after_restore.py."""

import json

import psycopg
import pytest

from app.db import embedded
from app.settings import Settings
from testing import clusters
from tests.cli.support import Run, slackwater

pytestmark = pytest.mark.holds_accounts  # it runs before the parts start


def test_it_says_what_it_did_and_what_is_missing(local: Run, settings: Settings) -> None:
    with psycopg.connect(settings.database_url) as conn:
        conn.execute("insert into tenant (account_id, name) values ('oak', 'oak')")
        conn.execute(
            "insert into file (file_id, tenant_id, purpose, filename, bytes, lines, state)"
            " select gen_random_uuid(), tenant_id, 'batch', 'x', 1, 1, 'ready' from tenant"
        )
        conn.execute("insert into pool (model) values ('m')")
        conn.execute(
            "insert into worker (pool_id, host, pid, lease_until) select pool_id, 'h', 1, now() + interval '1 h' from pool"
        )
    said = local("restored")
    assert said.exit_code == 0, said.output
    assert "1 worker removed, 0 chunks back in the queue, 0 webhooks hinted at again." in said.output
    assert "file-" in said.output
    document = json.loads(local("restored", "--json").output)
    assert document["workers"] == 0
    assert len(document["missing"]["files"]) == 1


def test_it_is_refused_while_a_part_is_connected(local: Run, settings: Settings) -> None:
    with psycopg.connect(settings.database_url, application_name="slackwater api"):
        said = local("restored")
    assert said.exit_code == 1
    assert "slackwater api" in said.output


def test_the_embedded_server_runs_only_for_the_command_unless_it_ran_before() -> None:
    with clusters.folder() as folder:
        settings = Settings(data_dir=folder)
        assert slackwater(settings, "migrate").returncode == 0
        done = slackwater(settings, "restored")
        assert done.returncode == 0, done.stderr
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(embedded.database_url(settings))
        embedded.start(settings)
        assert slackwater(settings, "migrate", "--contract").returncode == 0
        psycopg.connect(embedded.database_url(settings)).close()  # whoever had started it still has it
        embedded.stop(settings)
