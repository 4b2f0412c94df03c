"""Claims about the arithmetic of budgets."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.batches.money_wait import MoneyWait
from app.metering.budget_rules import Budget, Learned, Scope, Unit, crossed, limits, per_mille, windows_needed
from app.queue.estimate import Confidence, Estimate

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
BUDGET = Budget(
    "b", Scope.ACCOUNT, "", Unit.TOKENS, None, "day", "UTC", 1000, soft=(50, 75),
    window_from=NOW - timedelta(hours=12), window_to=NOW + timedelta(hours=12),
)  # fmt: skip
ESTIMATE = Estimate(0, 1.0, 10.0, 60.0, Confidence.HIGH)


@pytest.mark.parametrize(
    ("learned", "strict", "share"),
    [
        (Learned(), False, 1000),
        (Learned(tokens=900, worst_tokens=9_999), False, 1000),  # too little was seen
        (Learned(tokens=2_000, worst_tokens=10_000), False, 250),
        (Learned(tokens=10, worst_tokens=10_000), False, 50),
        (Learned(tokens=9_000, worst_tokens=10_000), False, 1000),
        (Learned(tokens=2_000, worst_tokens=10_000, cost=4, worst=10), False, 500),  # dear answers
        (Learned(tokens=2_000, worst_tokens=10_000), True, 1000),
    ],
)
def test_a_hold_takes_a_quarter_more_than_results_have_used(learned: Learned, strict: bool, share: int) -> None:
    assert per_mille(learned, strict=strict) == share


def test_each_threshold_is_crossed_once() -> None:
    assert crossed(replace(BUDGET, spent=499)) == []
    assert crossed(replace(BUDGET, spent=760)) == [50, 75]
    assert crossed(replace(BUDGET, spent=760, notified=50)) == [75]
    assert crossed(replace(BUDGET, spent=1000, notified=75)) == [100]
    assert crossed(replace(BUDGET, spent=1200, notified=75, spent_noted=True)) == []


def test_of_several_budgets_the_one_with_least_decides_and_each_unit_for_itself() -> None:
    other = replace(BUDGET, max=500, held=100)
    money = replace(BUDGET, unit=Unit.COST, currency="USD", max=10**9, spent=10**8)
    free, unspent, largest = limits([BUDGET, other, money])
    assert (free.tokens, unspent.tokens, largest.tokens) == (400, 500, 450)
    assert (free.cost, largest.cost) == (9 * 10**8, 9 * 10**8)
    assert limits([])[0].tokens is None


def test_the_eta_counts_the_windows_that_the_work_needs() -> None:
    budget = replace(BUDGET, spent=900)
    assert windows_needed([budget], 0, 100) == 0
    assert windows_needed([budget], 0, 101) == 1
    assert windows_needed([budget], 0, 2100) == 2
    day = 86_400.0
    assert MoneyWait(budget, 2, NOW).seconds == day / 2 + day
    assert MoneyWait(budget, 2, NOW).delayed(ESTIMATE).eta_seconds == day * 1.5 + 20
    assert MoneyWait(budget, 0, NOW).delayed(ESTIMATE) == ESTIMATE
    total = replace(budget, period="total", window_to=None)
    assert MoneyWait(total, 1, NOW).delayed(ESTIMATE).eta_seconds is None
