"""Claims about the intervals of a comparison: they hold what they promise, and say nothing where too little was seen."""

import random
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.metering import compare, sketch
from app.metering.compare import MEASURES, Interval, Observed
from app.usage_counts import UsageCounts


def times(*ms: float) -> list[int]:
    return sketch.counted(bytes(map(sketch.bucket, ms)))


def test_wilsons_interval_is_that_of_the_books() -> None:
    # Newcombe 1998, Table I: 81 of 263 and 15 of 148
    for found, among, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)):
        interval = compare.wilson(found, among)
        assert interval is not None
        assert interval[1:] == pytest.approx((low, high), abs=6e-5)
    assert compare.wilson(0, 0) is None


@given(st.integers(1, 500), st.data())
def test_a_share_is_within_its_interval_and_that_within_0_and_1(among: int, data: st.DataObject) -> None:
    found = data.draw(st.integers(0, among))
    interval = compare.wilson(found, among)
    assert interval is not None
    assert 0 <= interval.low <= interval.value + 1e-12  # type: ignore[operator]
    assert interval.value - 1e-12 <= interval.high <= 1  # type: ignore[operator]


def test_the_interval_of_a_median_holds_the_true_one_nineteen_times_in_twenty() -> None:
    draw, true, held = random.Random(5), 100.0, 0
    for _ in range(400):
        counts = times(*(draw.lognormvariate(0, 0.8) * true for _ in range(200)))
        interval = compare.latency(counts, 0.5)
        assert interval is not None
        held += interval.low / 1.05 <= true <= interval.high * 1.05  # type: ignore[operator]
    assert held / 400 > 0.94


def test_the_bootstrap_of_a_ratio_holds_the_true_one_nine_times_in_ten() -> None:
    draw, held = random.Random(7), 0
    for _ in range(100):
        pairs = []
        for _ in range(60):
            size = draw.randint(10, 1000)
            pairs.append((size * draw.gauss(0.3, 0.05), float(size)))
        interval = compare.ratio(pairs)
        assert interval is not None
        held += interval.low <= 0.3 <= interval.high  # type: ignore[operator]
    assert held >= 88


def test_little_that_was_seen_has_a_number_and_no_bounds() -> None:
    assert compare.latency(times(10, 20), 0.5) == Interval(pytest.approx(10, rel=0.06))
    assert compare.ratio([(1, 2), (2, 2)]) == Interval(0.75)
    assert compare.growth([[1, 2, 3], [1, 3, 5]]) == Interval(1.5)
    assert compare.growth([[1, 2]]) is None
    assert compare.latency(sketch.empty(), 0.5) is None


def test_a_comparison_draws_the_same_numbers_every_time() -> None:
    pairs = [(n % 7, n % 5 + 1) for n in range(50)]
    assert compare.ratio(pairs) == compare.ratio(pairs)


def test_intervals_differ_only_if_they_have_nothing_in_common() -> None:
    assert Interval(1, 0, 2).differs(Interval(4, 3, 5))
    assert not Interval(1, 0, 3).differs(Interval(4, 3, 5))
    assert not Interval(1).differs(Interval(4, 3, 5))


def test_every_measure_of_a_variant_is_the_ratio_that_it_names() -> None:
    hours = [(UsageCounts(10, 8, prompt=1000, cached=250, output=80, retried=4, retried_ok=1), Decimal("0.4"))] * 6
    seen = Observed(hours, times(*[20] * 30), times(*[500] * 30), [[100, 150, 200]] * 6, "USD")
    values = {measure.name: measure.of(seen) for measure in MEASURES}
    found = {name: interval and interval.value for name, interval in values.items()}
    assert found == {
        "ttft_p50": pytest.approx(20, rel=0.06),
        "ttft_p95": pytest.approx(20, rel=0.06),
        "duration_p50": pytest.approx(500, rel=0.06),
        "failures": pytest.approx(0.2),
        "cost_per_answer": pytest.approx(0.05),
        "cached_share": pytest.approx(0.25),
        "retried": pytest.approx(0.4),
        "retries_answered": pytest.approx(0.25),
        "tokens_per_turn": pytest.approx(50),
    }
