"""Claims about the commands that delete contents and keys."""

import asyncio
import json

import pytest

from app.cli.client import Client
from app.db.pool import Database
from app.settings import Settings
from tests.api.support import run_all
from tests.cli.support import Run

MODEL = "smollm2-135m-instruct"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Everything is sealed."""
    return settings.model_copy(update={"encrypt": "on"})


def submit(api: Settings, key: str) -> str:
    with Client(f"http://{api.host}:{api.port}", key) as client:
        given = {"requests": [{"prompt": "hello"}]}
        return str(client.call("POST", f"/ai/run/{MODEL}", json=given, params={"queueRequest": "true"})["request_id"])


def test_a_batch_is_deleted_once_it_has_ended(run: Run, api: Settings, key: str) -> None:
    made = submit(api, key)
    refused = run("batch", "rm", made)
    assert refused.exit_code == 1
    assert "cancel it or wait for its end" in refused.output

    async def work() -> None:
        async with Database.of(api, "test") as database:
            await run_all(database)

    asyncio.run(work())
    done = run("batch", "rm", made)
    assert (done.exit_code, "are deleted" in done.output) == (0, True), done.output
    assert json.loads(run("batch", "rm", made, "--json").output)["deleted_at"]
    assert "deleted" in run("results", made).output


def test_an_accounts_key_is_rotated_and_one_without_a_key_has_none_to_rotate(
    run: Run, api: Settings, key: str, local: Run
) -> None:
    refused = local("account", "rotate-kek", "acme")
    assert (refused.exit_code, "no key to rotate" in refused.output) == (1, True), refused.output
    submit(api, key)
    done = local("account", "rotate-kek", "acme", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["rewrapped"] == 1


def test_the_deletion_is_shown_on_the_raw_files_of_a_database(local: Run) -> None:
    shown = local("shred", "--verify", "--json")
    assert shown.exit_code == 0, shown.output
    stored, deleted, vacuumed, rotated = json.loads(shown.output)
    assert stored["clear"] > 0
    assert stored["key"] > 0
    assert [step["sealed"] for step in (stored, deleted, vacuumed, rotated)] == [0] * 4
    assert [step["value"] for step in (stored, deleted, vacuumed, rotated)] == [0] * 4
    assert vacuumed["clear"] == 0
    assert (deleted["opens"], rotated["opens"]) == (True, False)
    assert (deleted["value_opens"], rotated["value_opens"]) == (True, False)
