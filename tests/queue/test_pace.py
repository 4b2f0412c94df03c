"""The pace of a pool and its spread, from the steward's notes."""

import random

import pytest

from app.queue.pace import HALF_LIFE, NOTE_SECONDS, NOTES, STRETCH, Note, Pace, measure


def notes(*served: float, begin: float = 0.0) -> list[Note]:
    """Notes for these tokens in consecutive intervals."""
    found, total = [(begin, 0.0)], 0.0
    for number, tokens in enumerate(served, 1):
        total += tokens
        found.append((begin + number * NOTE_SECONDS, total))
    return found


def measured(*served: float) -> Pace:
    found = measure(notes(*served))
    assert found is not None
    return found


def test_without_an_interval_there_is_no_pace() -> None:
    assert measure([]) is None
    assert measure(notes()) is None
    assert measure([(0, 0), (3600, 100)]) is None


def test_a_constant_pace_is_known_at_once_and_its_spread_later() -> None:
    assert measured(50) == Pace(50 / NOTE_SECONDS, None)
    [pace, *_] = {measured(*[50] * 100)}
    assert pace.tokens_per_second == pytest.approx(50 / NOTE_SECONDS)
    assert pace.spread == pytest.approx(0)


def test_a_pause_between_two_notes_does_not_count_in_the_pace() -> None:
    later = [(at + 3600, tokens + 200) for at, tokens in notes(*[50] * 4)]
    assert measure([*notes(*[50] * 4), *later]) == Pace(50 / NOTE_SECONDS, None)


def test_tokens_that_a_lost_worker_takes_back_make_no_negative_pace() -> None:
    found = measure([(0, 0), (2.5, 100), (5, 60), (7.5, 160)])
    assert found is not None
    assert found.tokens_per_second == pytest.approx(40)


def test_the_pace_follows_a_slower_pool_within_two_half_lives() -> None:
    slow = int(2 * HALF_LIFE / NOTE_SECONDS)
    assert measured(*[100] * 60, *[25] * slow).tokens_per_second < 1.8 * 25 / NOTE_SECONDS


def test_a_pace_that_changes_all_the_time_has_a_large_spread() -> None:
    stretch = int(STRETCH / NOTE_SECONDS)
    spread = measured(*([100] * stretch + [20] * stretch) * 6).spread
    assert spread is not None
    assert spread > 0.5


@pytest.mark.parametrize("noise", [0.05, 0.2, 0.6])
def test_four_of_five_future_stretches_have_an_error_within_the_spread(noise: float) -> None:
    chance, within, asked = random.Random(7), 0, 0
    count = int(STRETCH / NOTE_SECONDS)
    for _ in range(60):
        drawn = [max(0.0, chance.gauss(100, 100 * noise)) for _ in range(NOTES)]
        before, after = drawn[:-count], drawn[-count:]
        pace = measured(*before)
        assert pace.spread is not None
        foretold = pace.tokens_per_second * STRETCH
        within += abs(sum(after) - foretold) <= pace.spread * foretold
        asked += 1
    assert within / asked > 0.65
