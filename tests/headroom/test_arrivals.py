"""The ledger of announced synchronous requests."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.headroom.arrivals import RECENT, Arrivals, SyncLoad, percentile

EXPIRE = 100.0


@pytest.fixture
def ledger() -> Arrivals:
    return Arrivals(EXPIRE)


def test_an_empty_ledger_knows_of_nothing(ledger: Arrivals) -> None:
    assert ledger.load(5.0) == SyncLoad(0, 0, 0, 0, -math.inf)


def test_a_request_awaits_its_first_token_then_holds_context_then_is_gone(ledger: Arrivals) -> None:
    ledger.arrived("a", 300, 50, 1.0)
    ledger.arrived("b", 200, 50, 2.0)
    assert ledger.load(2.0) == SyncLoad(2, 2, 500, 0, 2.0)
    ledger.first_token("a", 3.0)
    assert ledger.load(3.0) == SyncLoad(2, 1, 200, 301, 2.0)
    ledger.finished("a", 4.0)
    ledger.finished("b", 4.0)
    assert ledger.load(4.0) == SyncLoad(0, 0, 0, 0, 2.0)


def test_output_so_far_is_estimated_by_the_usual_pace_up_to_what_was_asked_for(ledger: Arrivals) -> None:
    ledger.finished("earlier", 0.0, itl_p50_ms=100.0)
    ledger.arrived("a", 300, 50, 1.0)
    ledger.first_token("a", 2.0)
    assert [ledger.load(now).context_tokens for now in (2.0, 3.0, 60.0)] == [301, 311, 350]


def test_what_never_ends_is_forgotten_when_no_request_can_be_that_old(ledger: Arrivals) -> None:
    ledger.arrived("a", 300, 50, 1.0)
    assert ledger.load(1.0 + EXPIRE).open == 1
    assert ledger.load(1.1 + EXPIRE).open == 0
    ledger.finished("a", 2.0 + EXPIRE)


def test_nobody_awaits_a_first_token_once_a_later_scrape_shows_nobody_waiting(
    ledger: Arrivals,
) -> None:
    ledger.arrived("whole", 300, 50, 1.0)
    ledger.arrived("late", 200, 50, 5.0)
    ledger.observed(2.0, waiting=0, beyond=2)
    ledger.observed(5.0, waiting=1, beyond=2)
    assert ledger.load(5.0).awaiting == 2
    ledger.observed(6.0, waiting=0, beyond=2)
    assert ledger.load(6.0) == SyncLoad(2, 1, 200, 301, 5.0)


def test_requests_of_a_gateway_that_died_are_over_once_a_later_scrape_shows_nobody(ledger: Arrivals) -> None:
    ledger.arrived("a", 300, 50, 1.0)
    ledger.observed(2.5, waiting=0, beyond=0)
    assert ledger.load(2.5).open == 1
    ledger.observed(3.5, waiting=0, beyond=0)
    assert ledger.load(3.5).open == 0


def test_messages_that_overtake_the_announcement_count_when_it_comes(ledger: Arrivals) -> None:
    ledger.first_token("a", 1.0)
    ledger.finished("b", 1.0)
    assert ledger.load(1.0).open == 0
    ledger.arrived("a", 300, 50, 2.0)
    ledger.arrived("b", 300, 50, 2.0)
    assert ledger.load(2.0) == SyncLoad(1, 0, 0, 301, 2.0)


def test_a_second_announcement_changes_nothing_but_the_time_of_the_last_arrival(ledger: Arrivals) -> None:
    ledger.arrived("a", 300, 50, 1.0)
    ledger.first_token("a", 1.5)
    ledger.arrived("a", 999, 99, 2.0)
    assert ledger.load(2.0) == SyncLoad(1, 0, 0, 301, 2.0)


def test_messages_without_an_announcement_take_no_memory_for_ever(ledger: Arrivals) -> None:
    for i in range(5000):
        ledger.first_token(f"t{i}", 1.0)
        ledger.finished(f"f{i}", 1.0)
    assert len(ledger._early) <= 1024


def test_latencies_are_of_the_last_requests(ledger: Arrivals) -> None:
    assert all(math.isnan(value) for value in (ledger.latency().ttft_p50, ledger.latency().itl_p95))
    for _ in range(RECENT):
        ledger.first_token("x", 0.0, ttft_ms=9999.0)
    for i in range(1, RECENT + 1):
        ledger.first_token("x", 0.0, ttft_ms=float(i))
        ledger.finished("x", 0.0, itl_p50_ms=10.0, itl_p95_ms=float(i))
    latency = ledger.latency()
    assert (latency.ttft_p50, latency.ttft_p95) == (256.0, 487.0)
    assert (latency.itl_p50, latency.itl_p95) == (10.0, 487.0)


@given(st.lists(st.tuples(st.sampled_from(["arrived", "first_token", "finished"]), st.sampled_from("abc"))))
def test_whatever_the_order_the_counts_agree_and_all_that_ended_is_gone(messages: list[tuple[str, str]]) -> None:
    ledger = Arrivals(EXPIRE)
    for now, (verb, name) in enumerate(messages):
        if verb == "arrived":
            ledger.arrived(name, 10, 5, float(now))
        else:
            getattr(ledger, verb)(name, float(now))
        load = ledger.load(float(now))
        assert 0 <= load.awaiting <= load.open <= 3
        assert load.awaiting_tokens == 10 * load.awaiting
        assert 11 * (load.open - load.awaiting) <= load.context_tokens <= 15 * (load.open - load.awaiting)
    for name in "abc":
        ledger.finished(name, 1000.0)
    assert ledger.load(0.0).open == 0


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_one_of_the_values_and_not_exceeded_by_its_share(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
