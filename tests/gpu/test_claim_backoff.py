"""Claims about when a worker that found nothing tries again."""

import pytest

from workers.gpu.claim_backoff import CALM_SECONDS, FEW_WORKERS, KNOWN_HEARTBEATS, MOST_HEARTBEATS, ClaimBackoff


def of(workers: int) -> ClaimBackoff:
    backoff = ClaimBackoff(0.05)
    backoff.workers = workers
    return backoff


def settled(backoff: ClaimBackoff) -> float | None:
    """The pause between two looks after many of them."""
    return [backoff.pause() for _ in range(20)][-1]


@pytest.mark.parametrize(("workers", "pause"), [(1, 0.05), (2, 0.08), (10, 0.4), (49, 1.96)])
def test_the_workers_of_a_small_fleet_look_25_times_a_second_together(workers: int, pause: float) -> None:
    assert settled(of(workers)) == pytest.approx(pause)


def test_in_a_large_fleet_nobody_looks() -> None:
    assert of(FEW_WORKERS - 1).pause() is not None
    assert of(FEW_WORKERS).pause() is None


def test_the_first_look_after_work_comes_soon_and_the_pauses_grow() -> None:
    backoff = of(10)
    assert [backoff.pause() for _ in range(4)] == [0.01, 0.02, 0.04, 0.08]
    backoff.found_work()
    assert backoff.pause() == 0.01


@pytest.mark.parametrize("workers", [1, 49])
def test_once_its_heartbeats_have_said_that_it_waits_it_looks_once_a_second_at_most_until_it_finds_work(
    workers: int,
) -> None:
    backoff = of(workers)
    usual = settled(backoff)
    for _ in range(KNOWN_HEARTBEATS - 1):
        backoff.on_heartbeat(work_waits=False)
    assert settled(backoff) == usual
    backoff.on_heartbeat(work_waits=False)
    assert settled(backoff) == max(CALM_SECONDS, usual or 0)
    backoff.found_nothing()
    assert settled(backoff) == max(CALM_SECONDS, usual or 0)
    backoff.found_work()
    assert backoff.pause() == 0.01


def heartbeats_until_a_claim(backoff: ClaimBackoff) -> int:
    """How many heartbeats that say that work waits come before the next claim, which finds nothing."""
    count = 1
    while not backoff.on_heartbeat(work_waits=True):
        count += 1
    backoff.found_nothing()
    return count


def test_each_claim_that_finds_nothing_although_work_waits_doubles_the_heartbeats_until_the_next_one() -> None:
    backoff = of(1000)
    assert [heartbeats_until_a_claim(backoff) for _ in range(5)] == [1, 2, 4, 8, MOST_HEARTBEATS]
    backoff.found_work()
    assert heartbeats_until_a_claim(backoff) == 1


def test_a_look_that_finds_nothing_says_nothing_about_heartbeats() -> None:
    backoff = of(1000)
    for _ in range(5):
        backoff.found_nothing()
    assert backoff.on_heartbeat(work_waits=True)


def test_a_heartbeat_without_waiting_work_leads_to_no_claim() -> None:
    backoff = of(1000)
    assert not backoff.on_heartbeat(work_waits=False)


@pytest.mark.parametrize(("workers", "seconds"), [(100, 0), (1000, 0), (5000, 8)])
def test_a_fleet_spreads_its_claims_so_that_500_workers_join_in_a_second(workers: int, seconds: float) -> None:
    assert of(workers).spread(heartbeat_seconds=2) == seconds
