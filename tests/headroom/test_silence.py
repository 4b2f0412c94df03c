"""How long a silence may last, and whose silence it was."""

import pytest

from app.headroom.silence_limit import CEILING_SECONDS, MARGIN, MEMORY_SECONDS, Pulse, SilenceLimit, Stall, missed


def test_patience_is_between_its_floor_and_its_ceiling() -> None:
    patience = SilenceLimit(2.0)
    assert patience.limit() == 2.0
    patience.ended(4.0, now=1.0)
    patience.ended(0.2, now=2.0)
    assert patience.limit() == MARGIN * 4.0
    assert patience.limit(plausible=6.0) == MARGIN * 6.0
    patience.ended(1000.0, now=3.0)
    assert patience.limit() == CEILING_SECONDS
    assert SilenceLimit(60.0).limit() == 60.0


def test_a_long_silence_is_forgotten_in_time() -> None:
    patience = SilenceLimit(1.0)
    patience.ended(4.0, now=0.0)
    patience.ended(0.1, now=MEMORY_SECONDS + 1)
    assert patience.limit() == MARGIN * 4.0
    patience.ended(0.1, now=2 * MEMORY_SECONDS + 2)
    assert patience.limit() == 1.0


def test_a_process_that_runs_misses_nothing() -> None:
    pulse = Pulse(0.3)
    for tick in range(100):
        pulse.beat(tick * 0.1)
    assert pulse.stalls(10.0) == ()


def test_a_process_that_was_stopped_has_missed_the_time_even_before_its_next_beat() -> None:
    pulse = Pulse(0.3)
    pulse.beat(10.0)
    assert missed(pulse.stalls(15.0), 9.9) == pytest.approx(4.7)
    pulse.beat(15.0)
    pulse.beat(15.1)
    assert missed(pulse.stalls(15.2), 9.9) == pytest.approx(4.7)
    assert missed(pulse.stalls(15.2), 14.0) == pytest.approx(1.0)
    assert missed(pulse.stalls(15.2), 15.0) == 0.0


def test_several_stalls_add_up() -> None:
    assert missed([Stall(5.0, 1.0), Stall(8.0, 2.0)], 0.0) == 3.0


def test_a_pause_that_was_planned_is_no_stall() -> None:
    pulse = Pulse(0.3)
    pulse.beat(10.0, pause=1.0)
    assert pulse.stalls(11.2) == ()
    pulse.beat(11.25)
    assert pulse.stalls(11.3) == ()
    assert [round(stall.seconds, 3) for stall in pulse.stalls(11.75)] == [0.2]
