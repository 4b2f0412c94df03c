"""The latency sketch."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.metering import sketch

SHORTEST, LONGEST = 1.0, 366_000.0
TIMES = st.floats(SHORTEST, LONGEST)
SHARES = st.integers(0, 100).map(lambda percent: percent / 100)


def counted(times: list[float]) -> list[int]:
    return sketch.counted(bytes(map(sketch.bucket, times)))


@given(st.lists(TIMES, min_size=1, max_size=60), SHARES)
def test_a_quantile_is_within_five_per_cent_of_the_exact_one(times: list[float], q: float) -> None:
    exact = sorted(times)[max(0, math.ceil(round(q * 100) * len(times) / 100) - 1)]
    found = sketch.quantile(counted(times), q)
    assert found is not None
    assert abs(found - exact) <= exact * (sketch.ERROR + 1e-9)


@given(st.lists(st.lists(st.floats(0, 1e9), max_size=30), max_size=5))
def test_merged_sketches_are_the_sketch_of_all_times(parts: list[list[float]]) -> None:
    assert sketch.merge(counted(part) for part in parts) == counted([ms for part in parts for ms in part])


@given(st.lists(TIMES, min_size=1, max_size=30))
def test_quantiles_grow_with_their_share(times: list[float]) -> None:
    counts = counted(times)
    found = [sketch.quantile(counts, q / 20) or 0.0 for q in range(21)]
    assert found == sorted(found)


def test_an_empty_sketch_has_no_quantile() -> None:
    assert sketch.quantile(sketch.empty(), 0.5) is None
    assert sketch.merge([]) == sketch.empty()


@pytest.mark.parametrize(
    ("ms", "index"), [(-5.0, 0), (0.0, 0), (0.5, 0), (1.0, 0), (1.2, 1), (1e6, 127), (math.inf, 127)]
)
def test_times_beyond_both_ends_are_counted_at_the_ends(ms: float, index: int) -> None:
    assert sketch.bucket(ms) == index


def test_the_buckets_end_at_366_seconds() -> None:
    assert sketch.bucket(346_000.0) == 127
    assert sketch.bucket(330_000.0) == 126
    assert math.isclose((1.05 / 0.95) ** sketch.BUCKETS, LONGEST, rel_tol=0.001)


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan])
def test_a_share_outside_of_0_to_1_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match="must be from 0 to 1"):
        sketch.quantile(sketch.empty(), q)


def test_a_list_of_another_length_is_not_merged() -> None:
    with pytest.raises(ValueError):
        sketch.merge([sketch.empty(), [1, 2, 3]])
