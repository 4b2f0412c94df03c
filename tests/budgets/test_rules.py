"""Claims about the arithmetic of budgets."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.budgets.queued import MoneyWait
from app.budgets.rules import Budget, Reserve, Scope, Unit, crossed, least, per_mille, refusal, windows_needed
from app.quantities import moment
from app.queue.estimate import Confidence, Estimate, Missing

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
BUDGET = Budget(
    "b", Scope.ACCOUNT, "", Unit.TOKENS, None, "day", "UTC", 1000, alerts_at=(50, 75),
    window_from=NOW - timedelta(hours=12), window_to=NOW + timedelta(hours=12),
)  # fmt: skip
ESTIMATE = Estimate(0, 1.0, 10.0, 60.0, Confidence.HIGH)


@pytest.mark.parametrize(
    ("used", "maximum", "reserve", "share"),
    [
        (0, 0, Reserve.EXPECTED, 1000),
        (900, 9_999, Reserve.EXPECTED, 1000),  # too little was seen
        (2_000, 10_000, Reserve.EXPECTED, 250),
        (10, 10_000, Reserve.EXPECTED, 50),
        (9_000, 10_000, Reserve.EXPECTED, 1000),
        (2_000, 10_000, Reserve.MAXIMUM, 1000),
    ],
)
def test_a_quarter_more_is_reserved_than_results_have_used(
    used: int, maximum: int, reserve: Reserve, share: int
) -> None:
    budget = replace(BUDGET, learned_used=used, learned_maximum=maximum, learned_tokens=maximum, reserve=reserve)
    assert budget.per_mille == share


def test_of_several_budgets_the_largest_share_is_reserved() -> None:
    learned = replace(BUDGET, learned_used=2_000, learned_maximum=10_000, learned_tokens=10_000)
    assert per_mille([learned, replace(learned, learned_used=4_000)]) == 500


def test_each_threshold_is_crossed_once() -> None:
    assert crossed(replace(BUDGET, spent=499)) == []
    assert crossed(replace(BUDGET, spent=760)) == [50, 75]
    assert crossed(replace(BUDGET, spent=760, notified=50)) == [75]
    assert crossed(replace(BUDGET, spent=1000, notified=75)) == [100]
    assert crossed(replace(BUDGET, spent=1200, notified=75, spent_in=BUDGET.window_from)) == []


def test_of_several_budgets_the_one_with_least_decides_and_each_unit_for_itself() -> None:
    other = replace(BUDGET, max=500, reserved=100)
    money = replace(BUDGET, unit=Unit.COST, currency="USD", max=10**9, spent=10**8)
    assert least([BUDGET, other, money], Unit.TOKENS, lambda budget: budget.free) == 400
    assert least([BUDGET, other, money], Unit.COST, lambda budget: budget.free) == 9 * 10**8
    assert least([], Unit.TOKENS, lambda budget: budget.free) is None


def test_the_eta_counts_the_windows_that_the_work_needs() -> None:
    budget = replace(BUDGET, spent=900)
    assert windows_needed(budget, 0, 100) == 0
    assert windows_needed(budget, 0, 101) == 1
    assert windows_needed(budget, 0, 2100) == 2
    day = 86_400.0
    assert MoneyWait(budget, 2, NOW).seconds == day / 2 + day


@pytest.mark.parametrize(
    ("wait", "until"),
    [
        (MoneyWait(BUDGET, 0, NOW), ""),
        (MoneyWait(BUDGET, 1, NOW, own_windows=1), f"renews {moment(BUDGET.window_to)}"),
        (MoneyWait(BUDGET, 4, NOW, own_windows=2), f"renews {moment(BUDGET.window_to)}, and the batch takes 2 windows"),
        (MoneyWait(replace(BUDGET, window_to=None), 1, NOW), "is never renewed, so raise its maximum"),
        (MoneyWait(BUDGET, 1, NOW, too_large=True), "has a maximum below what an item may use, so raise it"),
    ],
)
def test_work_that_needs_another_window_has_no_eta_and_says_when_its_money_comes(wait: MoneyWait, until: str) -> None:
    assert wait.until == until
    assert wait.delayed(ESTIMATE).missing == (Missing.MONEY if until else None)
    assert (wait.delayed(ESTIMATE).eta_seconds is None) == bool(until)
    for missing in Missing:  # money is told before a pace, and after what keeps all work of the model
        told = wait.delayed(replace(ESTIMATE, eta_seconds=None, missing=missing)).missing
        assert told == (Missing.MONEY if until and missing in (Missing.PACE, Missing.STILL) else missing)


def test_what_a_process_keeps_for_calls_is_not_said_to_be_of_work_that_runs() -> None:
    assert replace(BUDGET, spent=990).taken == "990 of 1,000 tokens spent"
    kept = replace(BUDGET, reserved=1)
    assert kept.taken == "0 of 1,000 tokens spent, 1 token reserved for running work and calls to come"


def test_a_request_larger_than_a_budgets_maximum_is_not_told_to_come_back() -> None:
    for spent in (0, 1000):
        refused = refusal(replace(BUDGET, spent=spent), 1001, NOW)
        assert refused.message == (
            "This may use 1,001 tokens, and the maximum of budget 'b' is 1,000 tokens; "
            "shorten it, lower its max_tokens, or raise the budget"
        )
        assert (refused.retry_after, refused.again) == (None, False)
    assert refusal(replace(BUDGET, spent=1000), 1000, NOW).retry_after == 12 * 3600
