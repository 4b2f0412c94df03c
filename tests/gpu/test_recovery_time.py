"""When an engine that is away is expected, by how long it took before."""

import pytest

from app import clock
from workers.gpu.recovery_time import BLIP_SECONDS, UNKNOWN_SECONDS, RecoveryTime


class Time:
    """A clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(clock, "monotonic", lambda: self.now)

    def away(self, comeback: RecoveryTime, seconds: float) -> None:
        comeback.lost()
        comeback.starts()
        self.now += seconds
        comeback.answers()


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


def test_a_start_is_expected_to_take_as_long_as_those_before_the_newest_counting_half(time: Time) -> None:
    comeback = RecoveryTime(own=True)
    assert comeback.expected() == UNKNOWN_SECONDS
    time.away(comeback, 20)
    time.away(comeback, 40)
    assert comeback.learned == comeback.expected() == 30
    comeback.starts()
    time.now += 12
    assert comeback.expected() == 18


def test_what_is_overdue_is_expected_to_stay_so_for_as_long_again(time: Time) -> None:
    comeback = RecoveryTime(own=True)
    time.away(comeback, 20)
    comeback.starts()
    time.now += 25
    assert comeback.expected() == 5
    time.now += 95
    assert comeback.expected() == 100


def test_an_engine_of_our_own_that_only_failed_to_answer_for_a_moment_teaches_nothing(time: Time) -> None:
    comeback = RecoveryTime(own=True)
    time.away(comeback, 20)
    comeback.lost()
    time.now += 0.5
    assert comeback.expected() == 1
    time.now += 7.5
    assert comeback.expected() == 8
    comeback.answers()
    assert comeback.learned == comeback.expected() == 20


def test_a_start_that_began_before_anybody_missed_the_engine_counts_from_its_beginning(time: Time) -> None:
    comeback = RecoveryTime(own=True)
    time.away(comeback, 20)
    comeback.starts()
    time.now += 5
    comeback.lost()
    assert comeback.expected() == 15
    time.now += 15
    comeback.answers()
    assert comeback.learned == 20


def test_of_an_attached_engine_nobody_can_tell_until_it_was_away_once(time: Time) -> None:
    comeback = RecoveryTime(own=False)
    comeback.answers()
    assert comeback.expected() is None
    comeback.lost()
    time.now += BLIP_SECONDS - 1
    comeback.answers()
    assert comeback.expected() is None
    comeback.lost()
    time.now += 50
    comeback.answers()
    comeback.lost()
    time.now += 10
    assert comeback.expected() == 40


def test_an_outage_of_an_attached_engine_that_is_met_again_goes_on(time: Time) -> None:
    comeback = RecoveryTime(own=False)
    for _ in range(3):
        comeback.lost()
        time.now += 30
    comeback.answers()
    assert comeback.learned == 90


def test_what_an_earlier_worker_learned_holds_until_we_know_better(time: Time) -> None:
    comeback = RecoveryTime(own=True)
    comeback.recall(35.0)
    assert comeback.expected() == 35
    comeback.recall(None)
    assert comeback.expected() == 35
    time.away(comeback, 15)
    comeback.recall(99.0)
    assert comeback.learned == 25
