"""Claims about the circuit breaker and the warnings to the owner."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from app.webhooks.endpoint_health import FAILURES_IN_A_ROW, HEALTHY, PAUSES, WARN_AT, after_failure

NOW = datetime(2026, 11, 21, tzinfo=UTC)
PATIENCE = timedelta(days=5)


def test_the_breaker_opens_after_some_failures_and_stays_open_longer_with_each_more() -> None:
    health, pauses = HEALTHY, []
    for _ in range(FAILURES_IN_A_ROW + len(PAUSES) + 2):
        health, _ = after_failure(health, health.open_until or NOW, NOW, PATIENCE)
        pauses.append((health.open_until - NOW).total_seconds() if health.open_until else None)
    assert pauses[: FAILURES_IN_A_ROW - 1] == [None] * (FAILURES_IN_A_ROW - 1)
    assert pauses[FAILURES_IN_A_ROW - 1 :] == [*PAUSES, PAUSES[-1], PAUSES[-1], PAUSES[-1]]


@given(st.lists(st.floats(min_value=0, max_value=86_400), min_size=1, max_size=60))
def test_each_warning_is_due_once_and_in_order(gaps: list[float]) -> None:
    health, moment, told = HEALTHY, NOW, []
    for gap in gaps:
        moment += timedelta(seconds=gap)
        health, share = after_failure(health, moment, moment, PATIENCE)
        if share is not None:
            told.append(share)
    passed = [step for step in (*WARN_AT, 1.0) if (moment - (health.failing_since or moment)) / PATIENCE >= step]
    assert len(told) <= len(passed)
    assert told == sorted(told)
    assert bool(told) == bool(passed)
