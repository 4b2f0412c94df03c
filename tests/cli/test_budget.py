"""Claims about `slackwater budget`: it sets, lists and removes budgets, and says what is wrong."""

import asyncio
import json

import pytest

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
    assert "Budget month: $0.00 of $500.00 spent; renews " in made.stdout
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
        (("--max-tokens", "5", "--soft", "75"), "--soft: is --alerts-at now, like --alerts-at 75 --alerts-at 90"),
        (("--max-tokens", "5", "--when-spent", "wait"), "--when-spent: is --queued now, like --queued wait"),
        ((), "--max-cost"),
    ],
)
def test_wrong_options_are_named(account: Settings, options: tuple[str, ...], problem: str) -> None:
    answer = slackwater(account, "budget", "set", "b", *options, "--account", "acme")
    assert answer.returncode == 1
    assert problem in answer.stderr
