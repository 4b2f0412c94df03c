"""Claims about the growth of conversations: its slope, and when it is told that the window fills."""

import pytest

from app.sessions.growth import Growth, after


def talk(*prompts: int) -> list[tuple[int, int]]:
    return [(each, 10) for each in prompts]


@pytest.mark.parametrize("prompts", [(100, 200), (100, 200, 300), (500, 500, 500), (1900, 1800, 1700)])
def test_it_is_not_told_while_there_is_room(prompts: tuple[int, ...]) -> None:
    assert after(talk(*prompts), 2000).left is None


def test_it_is_told_by_the_turn_after_which_ten_are_left() -> None:
    told = [after(talk(*range(100, 100 * n, 100)), 2000).left for n in range(2, 14)]
    assert told == [None] * 9 + [10, None, None]
    assert after(talk(100, 200, 300, 400), 1000) == Growth(100.0, 410, None)
    assert after(talk(100, 200, 300), 1000) == Growth(100.0, 310, 7)
    assert after(talk(100, 200, 300), None) == Growth(100.0, 310, None)


def test_it_is_told_again_after_a_summary_has_helped() -> None:
    before = [900, 1000, 1100]
    assert after(talk(*before), 2000).left == 9
    assert after(talk(*before, 300, 320, 340), 2000).left is None
    again = [after(talk(*range(300, 300 + 100 * n, 100)), 2000).left for n in range(3, 12)]
    assert sum(each is not None for each in again) == 1
