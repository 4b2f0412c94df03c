"""The growth of a session's prompts."""

from statistics import linear_regression

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.metering.slope import MIN_TURNS, TURNS, slope


@given(st.lists(st.integers(0, 10**6), min_size=MIN_TURNS, max_size=25))
def test_the_slope_is_that_of_the_least_squares_line_through_the_last_ten_turns(prompts: list[int]) -> None:
    last = prompts[-TURNS:]
    assert slope(prompts) == pytest.approx(linear_regression(range(len(last)), last).slope, abs=1e-6)


@given(st.integers(0, 10**5), st.integers(0, 10**4), st.integers(MIN_TURNS, 20))
def test_prompts_that_grow_by_the_same_number_of_tokens_have_exactly_that_slope(
    first: int, step: int, turns: int
) -> None:
    assert slope([first + step * turn for turn in range(turns)]) == step


def test_prompts_that_became_shorter_have_a_negative_slope() -> None:
    assert slope([300, 200, 100]) == -100


@pytest.mark.parametrize("prompts", [[], [5], [5, 900]])
def test_fewer_than_three_turns_have_no_slope(prompts: list[int]) -> None:
    assert slope(prompts) is None
