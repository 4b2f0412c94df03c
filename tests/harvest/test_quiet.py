"""Idle steps grow only while callers stay away for longer than usual, and the first caller ends that."""

from itertools import accumulate
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.engine.quiet import LEAST, MOST, SHARE, Quiet

pauses = st.lists(st.floats(0, 1e4), max_size=60)
instants = st.floats(0, 1e6)


def lived(pauses: list[float]) -> Quiet:
    """What is known after callers who came with these pauses."""
    quiet = Quiet(0.0)
    for at in accumulate(pauses):
        quiet = quiet.arrived(at)
    return quiet


@given(pauses, instants, instants)
def test_a_longer_silence_never_allows_a_shorter_step(pauses: list[float], one: float, other: float) -> None:
    quiet = lived(pauses)
    less, more = (quiet.step(quiet.since + silence) for silence in sorted((one, other)))
    assert less <= more


@given(pauses, instants)
def test_nobody_waits_longer_for_a_step_than_a_tenth_of_the_silence(pauses: list[float], silence: float) -> None:
    quiet = lived(pauses)
    assert 0 <= quiet.step(quiet.since + silence) <= SHARE * silence


@given(pauses, instants)
def test_the_first_caller_ends_it_at_once(pauses: list[float], silence: float) -> None:
    quiet = lived(pauses)
    now = quiet.since + silence
    assert quiet.arrived(now).step(now) == quiet.present(now).step(now) == 0
    assert quiet.arrived(now).step(now + LEAST) == 0


@given(pauses)
def test_what_is_usual_stays_within_its_bounds_so_every_silence_of_an_hour_frees_the_engine(
    pauses: list[float],
) -> None:
    quiet = lived(pauses)
    assert LEAST <= quiet.usual <= MOST
    assert quiet.step(quiet.since + 3600) >= SHARE * (3600 - MOST) - 1e-6


@given(pauses, instants)
def test_time_that_runs_backwards_allows_nothing(pauses: list[float], back: float) -> None:
    quiet = lived(pauses)
    assert quiet.step(quiet.since - back) == 0
    assert quiet.present(quiet.since - back).since == quiet.arrived(quiet.since - back).since == quiet.since


@pytest.mark.parametrize("rate", [0.5, 3.0, 20.0])
def test_of_callers_at_random_at_most_one_in_a_hundred_comes_after_a_silence_that_grew_steps(rate: float) -> None:
    chance, quiet, met = Random(rate), Quiet(0.0), 0
    for _ in range(20_000):
        now = quiet.since + chance.expovariate(rate)
        met += quiet.step(now) > 0
        quiet = quiet.arrived(now)
    assert met <= 200


def test_pauses_that_return_every_fifty_callers_are_learned() -> None:
    chance, quiet, waits = Random(1), Quiet(0.0), []
    for burst in range(100):
        for number in range(50):
            now = quiet.since + (8.0 if number == 0 else chance.expovariate(6))
            if burst > 10 and number == 0:
                waits.append(quiet.step(now))
            quiet = quiet.arrived(now)
    assert sum(wait > 0.1 for wait in waits) / len(waits) < 0.3
