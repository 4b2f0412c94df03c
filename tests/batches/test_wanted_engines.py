"""Claims about how many engines the queued work needs."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from app.batches.wanted_engines import LATE_SECONDS, Due, Wanted, wanted

HOUR = 3600.0
SPEED = 1000.0
AN_HOUR = SPEED * HOUR  # what one engine does in an hour

amounts = st.builds(Due, st.floats(-HOUR, 48 * HOUR), st.floats(0, 100 * AN_HOUR))


def test_no_work_needs_no_engine() -> None:
    assert wanted([], SPEED, 60) == Wanted(0, None)
    assert wanted([Due(HOUR, 0)], SPEED, 60) == Wanted(0, None)


def test_work_that_one_engine_can_do_in_time_needs_one_and_the_least_bit_more_needs_two() -> None:
    assert wanted([Due(HOUR, AN_HOUR)], SPEED, 0).engines == 1
    assert wanted([Due(HOUR, AN_HOUR + 1)], SPEED, 0).engines == 2


def test_the_time_in_which_an_engine_starts_is_not_time_in_which_it_works() -> None:
    assert wanted([Due(HOUR, AN_HOUR / 2)], SPEED, HOUR / 2).engines == 1
    assert wanted([Due(HOUR, AN_HOUR / 2 + 1)], SPEED, HOUR / 2).engines == 2


def test_the_tightest_deadline_decides_and_earlier_work_counts_for_later_deadlines_in_any_order() -> None:
    work = [Due(HOUR, 3 * AN_HOUR), Due(10 * HOUR, AN_HOUR), Due(24 * HOUR, 70 * AN_HOUR)]
    for order in permutations(work):
        assert wanted(order, SPEED, 0) == Wanted(4, 24 * HOUR)  # 74 engine hours within 24 hours
    assert wanted(work[:2], SPEED, 0) == Wanted(3, HOUR)


def test_late_work_is_planned_to_end_within_five_minutes_instead_of_by_infinitely_many_engines() -> None:
    assert wanted([Due(-HOUR, SPEED * LATE_SECONDS)], SPEED, 60).engines == 1
    assert wanted([Due(-HOUR, SPEED * LATE_SECONDS * 7)], SPEED, 60).engines == 7
    assert wanted([Due(90, SPEED * LATE_SECONDS)], SPEED, 120).engines == 1


def test_without_a_measurement_one_engine_is_asked_for_to_make_it() -> None:
    assert wanted([Due(HOUR, 1e15)], None, 60) == Wanted(1, HOUR)


@given(st.lists(amounts, max_size=20), st.floats(1, 1e5), st.floats(0, HOUR))
def test_the_engines_that_are_wanted_keep_each_deadline_and_one_less_does_not(
    work: list[Due], speed: float, start: float
) -> None:
    found = wanted(work, speed, start)

    def kept(engines: float) -> bool:
        done = [
            sum(other.tokens for other in work if other.seconds <= each.seconds)
            <= engines * speed * max(each.seconds - start, LATE_SECONDS)
            for each in work
        ]
        return all(done)

    rounding = 1e-9  # sums in another order differ in the last digits
    assert kept(found.engines * (1 + rounding))
    if found.engines > 1:
        assert not kept((found.engines - 1) * (1 - rounding))
