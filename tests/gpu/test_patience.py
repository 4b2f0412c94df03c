"""Claims about when a worker that found nothing tries again."""

import pytest

from workers.gpu.patience import FEW_WORKERS, MOST_HEARTBEATS, Patience


def of(workers: int) -> Patience:
    patience = Patience(0.05)
    patience.workers = workers
    return patience


def settled(patience: Patience) -> float | None:
    """The pause between two looks after many of them."""
    return [patience.look() for _ in range(20)][-1]


@pytest.mark.parametrize(("workers", "pause"), [(1, 0.05), (2, 0.08), (10, 0.4), (49, 1.96)])
def test_the_workers_of_a_small_fleet_look_25_times_a_second_together(workers: int, pause: float) -> None:
    assert settled(of(workers)) == pytest.approx(pause)


def test_in_a_large_fleet_nobody_looks() -> None:
    assert of(FEW_WORKERS - 1).look() is not None
    assert of(FEW_WORKERS).look() is None


def test_the_first_look_after_work_comes_soon_and_the_pauses_grow() -> None:
    patience = of(10)
    assert [patience.look() for _ in range(4)] == [0.01, 0.02, 0.04, 0.08]
    patience.fed()
    assert patience.look() == 0.01


def heartbeats_until_a_claim(patience: Patience) -> int:
    """How many heartbeats that say that work waits come before the next claim, which finds nothing."""
    count = 1
    while not patience.heard(work_waits=True):
        count += 1
    patience.starved()
    return count


def test_each_claim_that_finds_nothing_although_work_waits_doubles_the_heartbeats_until_the_next_one() -> None:
    patience = of(1000)
    assert [heartbeats_until_a_claim(patience) for _ in range(5)] == [1, 2, 4, 8, MOST_HEARTBEATS]
    patience.fed()
    assert heartbeats_until_a_claim(patience) == 1


def test_a_look_that_finds_nothing_says_nothing_about_heartbeats() -> None:
    patience = of(1000)
    for _ in range(5):
        patience.starved()
    assert patience.heard(work_waits=True)


def test_a_heartbeat_without_waiting_work_leads_to_no_claim() -> None:
    patience = of(1000)
    assert not patience.heard(work_waits=False)


@pytest.mark.parametrize(("workers", "seconds"), [(100, 0), (1000, 0), (5000, 8)])
def test_a_fleet_spreads_its_claims_so_that_500_workers_join_in_a_second(workers: int, seconds: float) -> None:
    assert of(workers).spread(heartbeat_seconds=2) == seconds
