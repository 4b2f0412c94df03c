"""Claims about `slackwater budget`: it sets, lists and removes budgets, and says what is wrong."""

import asyncio
import json
from typing import Any

import pytest

from app.budgets import service as budgets
from app.budgets.rules import Owner
from app.db.pool import Database
from app.settings import Settings
from app.tenants import service as tenants
from tests.cli.support import slackwater


@pytest.fixture
def account(settings: Settings) -> Settings:
    async def create() -> None:
        async with Database(settings.database_url, size=1) as database, database.durable() as conn:
            await tenants.ensure_tenant(conn, "acme")

    asyncio.run(create())
    return settings


def test_a_budget_is_set_listed_and_removed(account: Settings) -> None:
    made = slackwater(
        account, "budget", "set", "month", "--max-cost", "500 USD", "--alerts-at", "75", "--account", "acme"
    )
    assert "Budget month: $0.00 of $500.00 spent, $0.00 reserved, $500.00 available; renews " in made.stdout
    [found] = json.loads(slackwater(account, "budget", "list", "--account", "acme", "--json").stdout)
    assert (found["name"], found["max"], found["alerts_at"], found["on_limit"]["queued"]) == (
        "month",
        500.0,
        [75],
        "wait",
    )
    assert found["owner"] == "operator"
    assert found["not_counted"] == ["door"]
    listed = slackwater(account, "budget", "list", "--account", "acme").stdout
    assert "month	the account	$0.00" in listed
    assert "through engines' doors are in `slackwater spend`, and in no budget" in listed
    slackwater(account, "budget", "rm", "month", "--account", "acme")
    assert "has no budget" in slackwater(account, "budget", "list", "--account", "acme").stdout


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--max-cost", "much"), "--max-cost"),
        (("--max-tokens", "5", "--tz", "Mars"), "--tz"),
        (("--max-tokens", "5", "--divert-at", "80"), "a rule of the policy"),
        (("--max-tokens", "5", "--queued", "stop"), "--queued"),
        (("--max-tokens", "5", "--strict"), "--strict: is --reserve now: --reserve maximum"),
        (("--max-tokens", "5", "--alerts-at", "all"), "--alerts-at: must be whole numbers from 1 to 99, not 'all'"),
        (("--max-tokens", "5", "--alerts-at", "none", "--alerts-at", "5"), "from 1 to 99, not 'none'"),
        (("--max-tokens", "5", "--workflow", "w", "--whole-account"), "--whole-account"),
        (("--max-tokens", "5", "--soft", "75"), "--soft: is --alerts-at now, like --alerts-at 75 --alerts-at 90"),
        (("--max-tokens", "5", "--when-spent", "wait"), "--when-spent: is --queued now, like --queued wait"),
        ((), "--max-cost"),
    ],
)
def test_wrong_options_are_named(account: Settings, options: tuple[str, ...], problem: str) -> None:
    answer = slackwater(account, "budget", "set", "b", *options, "--account", "acme")
    assert answer.returncode == 1
    assert problem in answer.stderr


def put(settings: Settings, *options: str) -> dict[str, Any]:
    """Set the budget b of acme. Returns it."""
    answer = slackwater(settings, "budget", "set", "b", *options, "--account", "acme", "--json")
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)  # type: ignore[no-any-return]


def test_a_currency_is_kept_and_one_without_a_price_is_warned_of(account: Settings) -> None:
    made = slackwater(account, "budget", "set", "b", "--max-cost", "5 EUR", "--account", "acme")
    assert "Warning: budget b counts nothing now, as no model has a price in EUR; prices are in USD." in made.stdout
    changed = slackwater(account, "budget", "set", "b", "--max-cost", "5 USD", "--account", "acme")
    assert changed.returncode == 1
    assert "--max-cost: budget 'b' counts what costs EUR, and keeps its currency" in changed.stderr


FULL = (
    *(
        "--max-cost",
        "500 EUR",
        "--period",
        "day",
        "--tz",
        "Europe/Berlin",
        "--workflow",
        "nightly",
        "--alerts-at",
        "75",
    ),
    *("--queued", "refuse", "--synchronous", "alert", "--reserve", "maximum"),
)


@pytest.mark.parametrize(
    ("options", "change"),
    [
        (("--max-cost", "600 EUR"), {"max": 600.0, "available": 600.0}),
        (("--max-cost", "0.5"), {"max": 0.5, "available": 0.5}),
        (("--alerts-at", "50"), {"alerts_at": [50]}),
        (("--alerts-at", "none"), {"alerts_at": []}),
        (("--queued", "wait"), {"on_limit": {"queued": "wait", "synchronous": "alert"}}),
        (("--workflow", "daily"), {"workflow": "daily"}),
        (("--whole-account",), {"scope": "account", "workflow": None}),
        (("--max-tokens", "7"), {"unit": "tokens", "currency": None, "max": 7, "available": 7}),
        ((), {}),
    ],
)
def test_a_change_keeps_the_terms_that_are_not_given(
    account: Settings, options: tuple[str, ...], change: dict[str, object]
) -> None:
    before = put(account, *FULL)
    assert put(account, *options) == before | change


def test_a_budget_of_a_workflow_becomes_one_of_a_key(account: Settings) -> None:
    put(account, *FULL)
    made = slackwater(account, "key", "create", "--account", "acme", "--name", "k", "--json").stdout
    key = json.loads(made)["key"].removeprefix("sk_sw_").partition("_")[0]
    found = put(account, "--key", key)
    assert (found["scope"], found["key"], found["workflow"], found["max"]) == ("key", key, None, 500.0)


def test_a_new_budget_has_the_defaults(account: Settings) -> None:
    found = put(account, "--max-tokens", "5")
    assert (found["scope"], found["period"], found["tz"], found["alerts_at"]) == ("account", "month", "UTC", [])
    assert found["on_limit"] == {"queued": "wait", "synchronous": "refuse"}
    assert found["reserve"] == "expected"


def test_whoever_takes_over_the_budget_of_an_account_is_told(account: Settings) -> None:
    async def own() -> None:
        async with Database(account.database_url, size=1) as database, database.transaction() as conn:
            await budgets.put(conn, await tenants.find_tenant(conn, "acme"), "b", {"max_tokens": 9}, by=Owner.ACCOUNT)

    asyncio.run(own())
    said = "It was account acme's own; only operators can change it now."
    first, second = (slackwater(account, "budget", "set", "b", "--account", "acme").stdout for _ in range(2))
    assert said in first
    assert said not in second
    assert "0 of 9 tokens spent, 0 tokens reserved, 9 tokens available" in second


def test_what_is_spent_stays_when_a_maximum_is_raised(account: Settings) -> None:
    put(account, "--max-tokens", "100", "--workflow", "w")

    async def spend() -> None:
        async with Database(account.database_url, size=1) as database, database.durable() as conn:
            await conn.execute("update budget set spent = 40, reserved = 10")

    asyncio.run(spend())
    raised = slackwater(account, "budget", "set", "b", "--max-tokens", "200", "--account", "acme").stdout
    assert "40 of 200 tokens spent, 10 tokens reserved, 150 tokens available" in raised
