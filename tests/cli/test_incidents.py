"""Claims about `slackwater incidents`."""

import asyncio
import json
import re

import pytest

from app import clock
from app.changes import service as changes
from app.changes.kinds import ChangeKind
from app.db.pool import Database
from app.settings import Settings
from tests.cli.support import TERMINAL, Run
from tests.queue import support


@pytest.fixture
def past(settings: Settings, key: str) -> None:
    """A death of an engine, its return, and a spent budget of another account."""

    async def make() -> None:
        async with Database.of(settings, "test") as database, database.durable() as conn:
            other = await support.make_tenant(conn, "other")
            down = {"engine": "east-1", "reason": "engine_down", "host": "gpu-07", "batches": ["2457fe16"]}
            await changes.record(conn, ChangeKind.ENGINE_DOWN, "east-1", down)
            await changes.record(conn, ChangeKind.ENGINE_READY, "east-1", {"engine": "east-1"})
            opened = {"failures": 5, "until": "2026-11-23T14:40:00+00:00"}
            await changes.record(conn, ChangeKind.BREAKER_OPENED, "hook", opened, tenant_id=other)
            await changes.record(conn, ChangeKind.BUDGET_SPENT, "team", {"message": "all gone"}, tenant_id=other)
            await conn.execute("update change set at = at - interval '2 hours' where kind = 'engine.down'")

    asyncio.run(make())


@pytest.mark.usefixtures("past")
def test_incidents_of_all_accounts_are_in_order_with_ids_and_hosts(run: Run) -> None:
    found = json.loads(run("incidents", "--json").output)
    assert [each["kind"] for each in found] == [
        "engine.down",
        "part.started",
        "engine.ready",
        "breaker.opened",
        "budget.spent",
    ]
    assert found[0]["ids"] == {"engine": "east-1", "batches": ["2457fe16"]}
    assert found[0]["facts"]["host"] == "gpu-07"
    assert found[4]["account"] == "other"


@pytest.mark.usefixtures("past")
def test_incidents_are_chosen_by_time_trouble_and_subject(run: Run) -> None:
    assert "engine.down" not in run("incidents", "--since", "1h").output
    assert [each["kind"] for each in json.loads(run("incidents", "--trouble", "--json").output)] == [
        "engine.down",
        "breaker.opened",
        "budget.spent",
    ]
    assert len(json.loads(run("incidents", "--subject", "east-1", "--json").output)) == 2
    assert len(json.loads(run("incidents", "-n", "1", "--json").output)) == 1


@pytest.mark.usefixtures("past")
def test_an_unknown_subject_is_said_to_be_unknown_and_the_known_ones_are_named(run: Run) -> None:
    shown = run("incidents", "--subject", "nope").output
    assert 'Nothing is known of a subject "nope" in the last 24h.' in shown
    assert "Something is known of: api, east-1, hook, team." in " ".join(shown.split())
    assert "Nothing happened" in run("incidents", "--subject", "api", "--trouble").output


@pytest.mark.usefixtures("past")
def test_a_terminal_shows_them_in_words(run: Run) -> None:
    shown = run("incidents", env={**TERMINAL, "COLUMNS": "160"}).output
    assert "east-1 does not serve any more: it does not answer" in shown
    assert "budget team is spent: all gone (other)" in shown
    assert "batches 2457fe16" in shown
    assert "deliveries stopped until Mon 23 Nov 14:40 UTC, then one at a time is tried" in " ".join(shown.split())


@pytest.mark.usefixtures("past")
def test_times_name_their_zone_and_in_a_pipe_their_date(run: Run) -> None:
    zone = clock.now().astimezone().strftime("%Z")
    head, *rows = run("incidents").output.splitlines()
    assert head.startswith("at\twhat\t")
    assert all(re.match(rf"\d{{4}}-\d\d-\d\d [\d:]{{8}} {re.escape(zone)}\t", row) for row in rows)
    shown = run("incidents", env={**TERMINAL, "COLUMNS": "160"}).output
    assert re.search(rf"[\d:]{{5,8}} {re.escape(zone)} ", shown)


def test_nothing_that_happened_is_said_and_a_wrong_time_is_refused(run: Run) -> None:
    assert "Nothing happened in the last 90m." in run("incidents", "--since", "90m", "--trouble").output
    refused = run("incidents", "--since", "soon")
    assert refused.exit_code == 2
    assert "--since must be a length of time" in refused.output
