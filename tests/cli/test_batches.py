"""Claims about `slackwater batch …`, run as a user runs it."""

import asyncio
import io
import uuid

import pytest
from rich.console import Console

from app.cli import admin, batches
from app.db.pool import Database
from app.engines.service import ensure_pool
from app.failure import Failure
from app.queue.ingest import NewBatch
from app.settings import Settings
from app.tenants import service as tenants
from tests.cli.test_admin import slackwater
from tests.queue import support


@pytest.fixture
def batch(settings: Settings) -> NewBatch:
    """Forty queued items of the account `local`."""

    async def submit() -> NewBatch:
        async with Database.of(settings, "test") as database:
            async with database.durable() as conn:
                tenant = await tenants.find_tenant(conn, "local")
                pool = await ensure_pool(conn, "smollm2-135m-instruct")
            found = await support.submit(database, tenant, pool, 40)
            async with database.durable() as conn:
                await conn.execute("update batch set model = 'smollm2-135m-instruct'")
            return found

    admin.create_key(settings, "local", "test", 1)
    return asyncio.run(submit())


def shown(settings: Settings, request_id: uuid.UUID) -> str:
    console = Console(file=io.StringIO(), width=200, record=True)
    batches.show(settings, "local", request_id, console)
    return console.export_text()


def test_a_batch_is_listed_shown_paused_resumed_cancelled_and_retried(settings: Settings, batch: NewBatch) -> None:
    said = {}
    for verb in ("pause", "resume", "cancel", "retry"):
        done = slackwater(settings, "batch", verb, str(batch.request_id))
        assert done.returncode == 0, done.stderr
        said[verb] = (done.stdout.strip(), shown(settings, batch.request_id))
    assert "state      paused, run 1" in said["pause"][1]
    assert "waits      the batch is paused; resume it to go on" in said["pause"][1]
    assert "state      open, run 1" in said["resume"][1]
    assert "state      cancelled, run 1" in said["cancel"][1]
    assert said["retry"][0] == "40 items run again"
    assert "waits      no engine serves smollm2-135m-instruct now; the batch is kept until one does" in said["retry"][1]
    listed = slackwater(settings, "batch", "list").stdout
    assert str(batch.request_id) in listed
    assert "open" in listed


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_a_verb_on_an_unknown_batch_is_two_readable_lines(settings: Settings, batch: NewBatch, verb: str) -> None:
    with pytest.raises(Failure, match="No batch with this request_id"):
        batches.halt(settings, "local", uuid.uuid4(), verb)  # type: ignore[arg-type]
    with pytest.raises(Failure, match="There is no account nobody"):
        batches.halt(settings, "nobody", batch.request_id, verb)  # type: ignore[arg-type]


def test_a_verb_that_does_not_fit_says_what_would(settings: Settings, batch: NewBatch) -> None:
    with pytest.raises(Failure, match="The batch is open: cancel it or wait for its end"):
        batches.retry(settings, "local", batch.request_id)


def test_an_accounts_share_is_set_and_shown(settings: Settings) -> None:
    admin.create_key(settings, "local", "test", 1)
    assert admin.set_share(settings, "local", 2.5, None) == (2.5, 1_000_000_000)
    assert admin.set_share(settings, "local", None, 5000) == (2.5, 5000)
    done = slackwater(settings, "account", "share", "local")
    assert done.stdout.strip() == "local has weight 2.5 and at most 5000 tokens in flight."
    assert slackwater(settings, "account", "share", "local", "--weight", "0").returncode == 2
