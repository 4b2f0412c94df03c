"""Claims about `slackwater events`: events are kept, shown and acknowledged over HTTP."""

import asyncio
import json

import pytest

from app.cli import events
from app.db.pool import Database
from app.settings import Settings
from app.tenants import service as tenants
from tests.cli.support import Run
from tests.webhooks.support import emit

KIND = "cf.workersAi.model.batch.succeeded"


def happen(settings: Settings, count: int) -> list[str]:
    """So many events; returns their batches."""

    async def call() -> list[str]:
        async with Database.of(settings, "test") as database, database.durable() as conn:
            tenant_id = await tenants.find_tenant(conn, "acme")
            return [await emit(conn, n, tenant_id=tenant_id) for n in range(1, count + 1)]

    return asyncio.run(call())


def test_events_are_kept_shown_and_acknowledged(run: Run, settings: Settings) -> None:
    assert run("subscription", "queue", "mine", "--event", "batch.succeeded").exit_code == 0
    [request_id] = happen(settings, 1)
    assert "fetched as mine" in run("subscription", "list").output
    for options, shown in ([], True), (["--queue", "other"], False), (["--ack"], True), ([], False):
        answer = run("events", *options)
        assert answer.exit_code == 0, answer.output
        assert (request_id in answer.output) == shown
        assert (KIND in answer.output) == shown


@pytest.mark.parametrize("options", [[], ["--ack"]])
def test_every_page_is_shown_once_as_lines_of_json(
    run: Run, settings: Settings, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setattr(events, "_PAGE", 2)
    run("subscription", "queue", "mine", "--event", "batch.succeeded")
    made = happen(settings, 5)
    shown = [json.loads(line) for line in run("events", "--json", *options).output.splitlines()]
    assert [each["body"]["payload"]["requestId"] for each in shown] == made
    assert {each["queue_id"] for each in shown} == {"mine"}


def test_what_follows_ends_quietly_when_it_is_interrupted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **options: object) -> None:
        assert options["wait"] == events._WAIT_SECONDS
        raise KeyboardInterrupt

    monkeypatch.setattr("app.cli.client.Client.get", interrupted)
    assert run("events", "--follow").exit_code == 0
