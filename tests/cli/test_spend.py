"""Claims about `slackwater spend`: what it reports, and which questions it refuses."""

import asyncio
import json
from decimal import Decimal

import pytest

from app import clock
from app.db.pool import Database
from app.engines.catalogue import Price
from app.metering import ledger
from app.metering.ledger import Booking
from app.metering.lines import Lines, parts_of
from app.metering.spend_labels import SpendLabels
from app.settings import Settings
from app.tenants import service as tenants
from tests.cli.support import slackwater


@pytest.fixture
def used(settings: Settings) -> Settings:
    """Two workflows of one account have used something in this hour."""

    async def book() -> None:
        async with Database(settings.database_url, size=1) as database:
            async with database.durable() as conn:
                tenant = await tenants.ensure_tenant(conn, "acme")
            price = Price(Decimal(1), Decimal(0), Decimal("2.5"), "EUR")
            wanted = [
                parts_of(tenant, "k", SpendLabels("cheap"), "m", "sync", None),
                parts_of(tenant, "k", SpendLabels("dear"), "m", "batch", price),
            ]
            lines = await Lines().ids(database, wanted)
            hour = clock.now().replace(minute=0, second=0, microsecond=0)
            async with database.transaction() as conn:
                await ledger.book(conn, [Booking(hour, line, 3, 2, 1_000, 100, 500) for line in lines])

    asyncio.run(book())
    return settings


def test_usage_is_reported_by_what_is_asked_for(used: Settings) -> None:
    rows = json.loads(slackwater(used, "spend", "--by", "workflow,kind", "--json").stdout)
    assert {(row["workflow"], row["kind"], row["requests"], row["ok"], row["output"]) for row in rows} == {
        ("cheap", "sync", 3, 2, 500),
        ("dear", "batch", 3, 2, 500),
    }
    assert [row["cost"] for row in rows] == [0.00215, None]  # the most expensive first
    shown = slackwater(used, "spend").stdout
    assert "0.00215 EUR" in shown
    assert "6 requests" in shown
    assert "3,000 tokens" in shown


def test_usage_that_the_queue_did_not_count_is_shown_by_the_check(used: Settings) -> None:
    done = slackwater(used, "spend", "check", "--json")
    assert done.returncode == 1
    assert {(row["count"], row["ledger"], row["queue"]) for row in json.loads(done.stdout)} == {
        ("ok", 2, 0),
        ("failed", 1, 0),
        ("prompt tokens", 1_000, 0),
        ("cached tokens", 100, 0),
        ("output tokens", 500, 0),
    }


def test_without_usage_the_ledger_agrees_and_the_report_says_so(settings: Settings) -> None:
    assert slackwater(settings, "spend", "check").returncode == 0
    assert "No request ended" in slackwater(settings, "spend").stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--by", "colour"), "Choose from account, key"),
        (("--since", "soon"), "like 24h"),
        (("--account", "nobody"), "nobody"),
    ],
)
def test_a_question_that_cannot_be_answered_says_what_can(
    settings: Settings, arguments: tuple[str, ...], says: str
) -> None:
    done = slackwater(settings, "spend", *arguments)
    assert done.returncode == 1
    assert says in done.stderr
