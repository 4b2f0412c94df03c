"""Claims about the growth that a soak reports."""

import random

import pytest

from tests.soak.__main__ import summary
from tests.soak.trend import Point, trend

HOUR = 3600


def line(begin: float, percent: float, noise: float = 0.0, seed: int = 1) -> list[Point]:
    """Readings each 5 seconds of an hour that grow by so many percent of the mean."""
    rng = random.Random(seed)
    return [(at, begin * (1 + percent / 100 * (at / HOUR - 0.5)) + rng.gauss(0, noise)) for at in range(0, HOUR, 5)]


@pytest.mark.parametrize("percent", [-3.0, 0.0, 0.5, 12.0])
def test_a_straight_line_has_its_slope_and_no_interval(percent: float) -> None:
    found = trend(line(200, percent))
    assert found.growth == pytest.approx(percent, abs=0.01)
    assert found.low == pytest.approx(found.high, abs=0.01)


def test_the_interval_holds_the_true_growth_nineteen_times_of_twenty() -> None:
    found = [trend(line(200, 1.0, noise=5, seed=seed)) for seed in range(200)]
    assert 180 <= sum(each.low <= 1.0 <= each.high for each in found) <= 199


def test_noise_alone_is_no_growth_and_a_leak_under_noise_is_one() -> None:
    assert not trend(line(200, 0.0, noise=5)).grows(1)
    assert trend(line(200, 10.0, noise=5)).grows(1)


def test_growth_below_the_floor_of_a_small_series_is_none_and_above_it_is_one() -> None:
    work = {"kept_mb": line(10, 0.0), "items_done": line(10, 0.0)}
    small = {"hot_tables_mb": line(0.3, 50.0), "open_files.api": line(20, 4.0), "rss_mb.api": line(10, 0.5)}
    large = {"hot_tables_mb": line(0.3, 400.0), "open_files.api": line(20, 6.0), "rss_mb.api": line(10, 2.0)}
    assert summary(small | work, {}, HOUR, 1)["grows"] == []
    assert summary(large | work, {}, HOUR, 1)["grows"] == sorted(large)


def test_fewer_than_three_readings_have_no_trend() -> None:
    with pytest.raises(ValueError, match="at least three"):
        trend([(0, 1), (1, 1)])


def test_a_leak_a_failed_request_or_a_missing_answer_makes_a_soak_unsound() -> None:
    steady = {name: line(10, 0.0) for name in ("rss_mb.api", "kept_mb", "items_done")}
    good = {"batches": 2, "answers": 100, "single": 3}
    assert summary(steady, good, HOUR, 1)["sound"]
    assert summary(steady | {"rss_mb.api": line(10, 20.0)}, good, HOUR, 1)["grows"] == ["rss_mb.api"]
    assert not summary(steady, good | {"answers": 99}, HOUR, 1)["sound"]
    assert not summary(steady, good | {"single_failed": 1}, HOUR, 1)["sound"]
