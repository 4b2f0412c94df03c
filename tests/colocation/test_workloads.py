"""The generator has the statistics of the trace that it was fitted to."""

from collections import Counter
from random import Random
from statistics import fmean, pstdev, quantiles

import pytest

from benchmarks.colocation.workloads import BURST_SECONDS, Workload, conversation, traced, workloads

HOUR = 3500.0


@pytest.fixture(scope="module")
def generated():
    return [list(conversation(HOUR, Random(seed))) for seed in range(10)]


def test_rate_and_its_spread_per_second_are_those_of_the_trace(generated):
    rates = [len(arrivals) / HOUR for arrivals in generated]
    assert fmean(rates) == pytest.approx(5.5, rel=0.08)
    spreads = []
    for arrivals in generated:
        counts = Counter(int(each.at) for each in arrivals)
        per_second = [counts[second] for second in range(int(HOUR))]
        spreads.append(pstdev(per_second) / fmean(per_second))
    assert fmean(spreads) == pytest.approx(0.50, abs=0.04)


@pytest.mark.parametrize(
    ("field", "mean", "median", "p90", "p99"),
    [("prompt", 1155, 1020, 2734, 4142), ("output", 211, 129, 424, 601)],
)
def test_lengths_have_the_quantiles_of_the_trace(generated, field, mean, median, p90, p99):
    values = [getattr(each, field) for arrivals in generated for each in arrivals]
    cuts = quantiles(values, n=100)
    assert fmean(values) == pytest.approx(mean, rel=0.03)
    assert [cuts[49], cuts[89], cuts[98]] == pytest.approx([median, p90, p99], rel=0.05)


def test_arrivals_depend_on_seed_and_workload_only():
    conversation_, burst = (Workload(name, 30) for name in ("conversation", "burst"))
    assert conversation_.arrivals(1) == conversation_.arrivals(1)
    assert conversation_.arrivals(1) != conversation_.arrivals(2)
    assert conversation_.arrivals(1) != burst.arrivals(1)


def test_a_burst_comes_in_the_middle_and_lasts_ten_seconds():
    with_burst = Workload("burst", 60, burst=14).arrivals(1)
    base = Workload("burst", 60).arrivals(1)
    extra = [each.at for each in with_burst if each not in base]
    assert len(extra) == 140
    assert min(extra) >= 30
    assert max(extra) < 30 + BURST_SECONDS


def test_a_ramp_is_busiest_in_the_middle():
    arrivals = Workload("diurnal", 900, ramp=True).arrivals(1)
    thirds = Counter(int(each.at // 300) for each in arrivals)
    assert thirds[1] > 2 * thirds[0]
    assert thirds[1] > 2 * thirds[2]


def test_arrivals_are_in_order_and_within_the_run():
    for workload in workloads(quick=True).values():
        times = [each.at for each in workload.arrivals(3)]
        assert times == sorted(times)
        assert times[0] >= 0
        assert times[-1] < workload.seconds


def test_a_trace_is_cut_into_slices_that_begin_at_zero(tmp_path):
    path = tmp_path / "trace.csv"
    rows = "".join(f"{second},{second + 1},7.0\n" for second in range(2000))
    path.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + rows)
    first, second = (list(traced(path, 100, seed)) for seed in (1, 2))
    assert len(first) == len(second) == 100
    assert (first[0].at, first[0].prompt, first[0].output) == (0, 601, 7)
    assert second[0].prompt == 1051


def test_a_trace_shorter_than_the_run_is_refused(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,1\n5,1,1\n")
    with pytest.raises(ValueError, match="covers 5 s"):
        list(traced(path, 100, 1))
