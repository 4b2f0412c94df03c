"""Claims about `slackwater spend`: what it reports, and which questions it refuses."""

import asyncio
import csv
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

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
from app.usage_counts import UsageCounts
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
                await ledger.book(conn, [Booking(hour, line, UsageCounts(3, 2, 1_000, 100, 500)) for line in lines])

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
    assert "6 requests ·" in shown
    assert "3,000 tokens" in shown


def test_a_month_is_that_of_the_time_zone_that_is_asked_for(used: Settings) -> None:
    zone, now = "Pacific/Kiritimati", clock.now()  # 14 hours ahead: most of a day is the next one there
    here = {row["day"] for row in json.loads(slackwater(used, "spend", "--by", "day", "--tz", zone, "--json").stdout)}
    hour = now.replace(minute=0, second=0, microsecond=0)
    assert here == {f"{hour.astimezone(ZoneInfo(zone)):%Y-%m-%d}"}
    wrong = slackwater(used, "spend", "--tz", "Mars/Base")
    assert (wrong.returncode, "--tz Mars/Base: not a time zone." in wrong.stderr) == (1, True)


def test_the_rate_card_is_shown_with_the_dates_of_its_prices(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    price = "input = 1.234567\ncached_input = 0\noutput = 2\n"
    card = f'[[models.m.prices]]\nwork = ["idle"]\nfrom = 2026-12-01\n{price}'
    file.write_text(f"[models.m]\ncontext_window = 64\n[models.m.price]\n{price.replace('1.234567', '10')}{card}")
    priced = settings.model_copy(update={"models_file": file})
    shown = slackwater(priced, "spend", "prices").stdout.splitlines()
    assert shown[-2:] == ["m\tidle\t\t10\t0\t2\tUSD", "m\tidle\t2026-12-01 00:00\t1.234567\t0\t2\tUSD"]
    assert len(json.loads(slackwater(priced, "spend", "prices", "--json").stdout)) == 5


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


@pytest.fixture
def two_weeks(settings: Settings) -> Settings:
    """Two days of one workflow in two variants: the second day has twice the requests and another model's share."""

    async def book() -> None:
        async with Database(settings.database_url, size=1) as database:
            async with database.durable() as conn:
                tenant = await tenants.ensure_tenant(conn, "acme")
            price, dear = (
                Price(Decimal(1), Decimal("0.1"), Decimal("2.5")),
                Price(Decimal(3), Decimal("0.3"), Decimal(9)),
            )
            wanted = [
                parts_of(tenant, "k", SpendLabels("tag", variant=variant), model, "sync", each, "/v1/chat/completions")
                for variant, model, each in (("a", "small", price), ("b", "big", dear))
            ]
            small, big = await Lines().ids(database, wanted)
            days = [datetime(2026, 11, day, 5, tzinfo=UTC) for day in (3, 4)]
            bookings = [
                Booking(
                    days[0], small, UsageCounts(100, 100, 100_001, 40_000, 9_003), bytes([60] * 100), bytes([90] * 100)
                ),
                Booking(
                    days[1], small, UsageCounts(150, 140, 170_003, 20_000, 14_007), bytes([61] * 150), bytes([91] * 150)
                ),
                Booking(days[1], big, UsageCounts(50, 50, 50_000, 0, 9_999), bytes([80] * 50), bytes([99] * 50)),
            ]
            async with database.transaction() as conn:
                await ledger.book(conn, bookings)

    asyncio.run(book())
    return settings


@pytest.mark.parametrize("by", ["workflow", "endpoint", "variant"])
def test_the_terms_of_an_explanation_add_up_to_the_change_to_the_unit(two_weeks: Settings, by: str) -> None:
    done = slackwater(two_weeks, "spend", "explain", "2026-11-03", "2026-11-04", "--by", by, "--json")
    [found] = json.loads(done.stdout)
    assert found["currency"] == "USD"
    assert found["before"] == 60_001 * 1000 + 40_000 * 100 + 9_003 * 2500
    assert found["change"] == found["after"] - found["before"] == sum(term["amount"] for term in found["terms"])
    assert len(found["terms"]) > 3
    assert by in found["terms"][0]


def test_an_explanation_is_read_from_the_largest_amount_down(two_weeks: Settings) -> None:
    shown = slackwater(two_weeks, "spend", "explain", "2026-11-03", "2026-11-04").stdout.splitlines()
    assert shown[0].startswith("2026-11-03: $0.087")
    assert "requests of workflow 'tag' grew from 100 to 200" in "\n".join(shown)
    amounts = [abs(float(line.partition("\t")[0].replace("$", ""))) for line in shown[2:]]
    assert amounts == sorted(amounts, reverse=True)


def test_latencies_are_quantiles_by_what_is_asked_for(two_weeks: Settings) -> None:
    found = json.loads(
        slackwater(two_weeks, "spend", "latency", "--since", "2026-11", "--by", "endpoint,variant", "--json").stdout
    )
    rows = {row["variant"]: row for row in found}
    assert {row["endpoint"] for row in found} == {"/v1/chat/completions"}
    assert rows["a"]["duration"]["count"] == 250
    assert rows["a"]["first_token"]["p50"] < rows["b"]["first_token"]["p50"]
    head, *rows_shown = slackwater(two_weeks, "spend", "latency", "--since", "2026-11").stdout.splitlines()
    assert head.split("\t")[2:] == ["streams", "TTFT p50", "TTFT p99", "answers", "whole p50", "whole p99"]
    assert [(line.split("\t")[2], line.split("\t")[5]) for line in rows_shown] == [("250", "250"), ("50", "50")]


def test_sums_of_several_accounts_say_so_and_the_harvest_is_one_line(used: Settings) -> None:
    async def book() -> None:
        async with Database(used.database_url, size=1) as database:
            async with database.durable() as conn:
                tenant = await tenants.ensure_tenant(conn, "other")
            [line] = await Lines().ids(database, [parts_of(tenant, "k", SpendLabels("free"), "m", "batch", None)])
            hour = clock.now().replace(minute=0, second=0, microsecond=0)
            async with database.transaction() as conn:
                await ledger.book(conn, [Booking(hour, line, UsageCounts(1, 1, 10, 0, 5, engine_ms=90_000))])

    asyncio.run(book())
    shown = slackwater(used, "spend").stdout
    assert "7 requests of 2 accounts · 3,015 tokens" in shown
    assert shown.splitlines()[-1] == "Harvested: 1,515 tokens · less than 0.1 engine hours · 0.00215 EUR"


def test_the_export_has_the_same_cost_in_both_formats(two_weeks: Settings) -> None:
    found = {}
    for form, column in (("focus", "EffectiveCost"), ("csv", "cost")):
        text = slackwater(two_weeks, "spend", "export", "--format", form, "--since", "2026-11").stdout
        rows = list(csv.DictReader(text.splitlines()))
        found[form] = sum(Decimal(row[column]) for row in rows)
        assert len(rows) == {"focus": 8, "csv": 3}[form]
    assert found["focus"] == found["csv"] > 0


def test_two_variants_are_compared_with_intervals(two_weeks: Settings) -> None:
    done = slackwater(two_weeks, "compare", "a", "b", "--since", "2026-11", "--json")
    found = json.loads(done.stdout)
    assert found["requests"] == {"a": 250, "b": 50}
    failures = found["measures"]["failures"]
    assert failures["a"]["value"] == 10 / 250
    assert failures["a"]["low"] < 0.04 < failures["a"]["high"]
    assert found["measures"]["ttft_p50"]["differs"] is True
    shown = slackwater(two_weeks, "compare", "a", "b", "--since", "2026-11").stdout
    assert "not answered\t4.0 % [2.2 %, 7.2 %]\t0.0 % [0.0 %, 7.1 %]\t" in shown


def test_a_report_without_anything_to_report_says_so(settings: Settings) -> None:
    for arguments, says in (
        (("spend", "explain", "last-week", "this-week"), "No model with a price was used"),
        (("spend", "latency"), "No answer with a known latency"),
        (("spend", "sessions"), "No session"),
    ):
        done = slackwater(settings, *arguments)
        assert (done.returncode, says in done.stdout) == (0, True), arguments
        empty = slackwater(settings, *arguments, "--json")
        assert not any(json.loads(empty.stdout).values() if "sessions" in arguments else json.loads(empty.stdout))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("spend", "explain", "soon", "today"), "BEFORE soon: not a period of time."),
        (("spend", "explain", "today", "2026-13"), "AFTER 2026-13: not a period of time."),
        (("spend", "explain", "today", "today", "--by", "model"), "Choose one of account, key, workflow"),
        (("spend", "latency", "--by", "colour"), "Choose from account"),
        (("spend", "sessions", "--by", "key"), "Choose from account, workflow"),
        (("spend", "export", "--format", "xls"), "Choose one of focus, csv."),
        (("compare", "a", "a"), "Name two different values"),
        (("compare", "a", "b"), "No request of the variant 'a'"),
    ],
)
def test_a_report_of_nothing_known_is_refused_with_what_there_is(
    settings: Settings, arguments: tuple[str, ...], says: str
) -> None:
    done = slackwater(settings, *arguments)
    assert done.returncode == 1
    assert says in done.stderr
