"""Events by the command line: kept, shown, acknowledged."""

from app.db.pool import Database
from app.settings import Settings
from app.tenants import service as tenants
from tests.cli.test_admin import slackwater
from tests.webhooks.support import emit


async def test_events_are_kept_shown_and_acknowledged(settings: Settings, database: Database) -> None:
    made = slackwater(settings, "subscription", "queue", "mine", "--account", "acme", "--event", "batch.succeeded")
    assert made.returncode == 0, made.stderr
    async with database.durable() as conn:
        tenant_id = await tenants.find_tenant(conn, "acme")
        request_id = await emit(conn, 1, tenant_id=tenant_id)
    assert "fetched as mine" in slackwater(settings, "subscription", "list", "--account", "acme").stdout
    for options, shown in ([], True), (["--queue", "other"], False), (["--ack"], True), ([], False):
        answer = slackwater(settings, "events", "--account", "acme", *options)
        assert answer.returncode == 0, answer.stderr
        assert (request_id in answer.stdout) == shown
        assert ("cf.workersAi.model.batch.succeeded" in answer.stdout) == shown


def test_an_account_that_is_none_is_told(settings: Settings) -> None:
    answer = slackwater(settings, "events", "--account", "nobody")
    assert answer.returncode == 1
    assert "slackwater key create --account nobody" in answer.stderr
