"""Which requests in an engine's gauges are ours and have left already."""

import random

from app.headroom.leaving import LOOKS, Leaving

BUSY = 3.0


def test_without_departures_every_request_beyond_ours_is_somebody_elses() -> None:
    leaving = Leaving()
    assert [leaving.among(2, 0, look, look * 0.1, busy_seconds=BUSY) for look in range(5)] == [0] * 5


def test_one_of_ours_that_has_just_left_is_not_taken_for_a_caller() -> None:
    leaving = Leaving()
    for look in range(4):
        assert leaving.among(0, 0, look, look * 0.1, busy_seconds=BUSY) == 0
    assert leaving.among(1, 1, 4, 0.4, busy_seconds=BUSY) == 1
    assert leaving.among(0, 1, 5, 0.5, busy_seconds=BUSY) == 0


def test_a_caller_is_seen_after_a_few_looks_however_often_ours_leave() -> None:
    leaving = Leaving()
    for look in range(6):
        leaving.among(0, 3 * look, look, look * 0.1, busy_seconds=BUSY)
    others = [1 - leaving.among(1, 3 * look, look, look * 0.1, busy_seconds=BUSY) for look in range(6, 6 + LOOKS)]
    assert others == [0] * (LOOKS - 1) + [1]


def test_gauges_that_stay_after_the_last_step_count_as_callers_for_no_longer_than_a_step_may_take() -> None:
    leaving = Leaving()
    for look in range(4):
        leaving.among(0, 0, look, look * 0.1, busy_seconds=BUSY)
    after = [4 - leaving.among(4, 4, 3, 0.4 + look * 0.5, busy_seconds=BUSY) for look in range(12)]
    assert after[-1] == 0
    assert leaving.among(5, 4, 3, 9.0, busy_seconds=BUSY) == 4, "the fifth was never ours"


def test_beside_batch_work_that_comes_and_goes_ghosts_are_rare() -> None:
    """Steps of 60 ms, looks every 150 ms; ours leave 6 times a second, and the gauges are those of the last step."""
    dice, leaving = random.Random(1), Leaving()
    left, published, ghosts, raw = 0, 0, 0, 0
    now, next_step = 0.0, 0.0
    departures = sorted(dice.uniform(0, 600) for _ in range(3600))
    for look in range(1, 4000):
        now = look * 0.15
        while next_step <= now:
            published = left + sum(at <= next_step for at in departures[left : left + 50])
            next_step += 0.06
        gone = left
        while gone < len(departures) and departures[gone] <= now:
            gone += 1
        left = gone
        beyond = left - published if left > published else 0
        raw += beyond > 0
        ghosts += beyond > leaving.among(beyond, left, next_step, now, busy_seconds=BUSY)
    assert raw > 800
    assert ghosts < 0.2 * raw
