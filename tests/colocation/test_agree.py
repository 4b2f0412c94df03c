"""The agreement of clients: ratios to ours, the 5 % limit, and a fair order."""

from benchmarks.colocation.result_table import LATENCIES
from benchmarks.colocation.sync_callers import Call
from benchmarks.colocation.track_agree import agreement, figures, in_turn


def row(value):
    return {f"{kind}_p{q}_ms": value for kind, q in LATENCIES}


def test_within_five_percent_at_every_percentile():
    found = agreement({"ours": row(100.0), "vllm": row(104.0), "aiperf": row(96.0) | {"itl_p99_ms": 94.0}})
    assert found["vllm"]["within_5_percent"]
    assert found["vllm"]["ttft_p50"] == 1.04
    assert not found["aiperf"]["within_5_percent"]
    assert found["aiperf"]["itl_p99"] == 0.94


def test_a_client_without_samples_does_not_agree():
    assert not agreement({"ours": row(100.0), "vllm": row(None)})["vllm"]["within_5_percent"]
    assert agreement({"vllm": row(1.0)}) == {}


def test_every_client_takes_every_place():
    names = ["a", "b", "c", "d"]
    for place in range(4):
        assert {in_turn(names, block)[place] for block in range(8)} == set(names)


def test_figures_count_from_the_moment_of_sending():
    calls = [Call(0.0, 0.1, 0.2, 0.4, 3, [0.1, 0.1]), Call(1.0, 1.0, error="HTTP 503")]
    found = figures(calls)
    assert found["ttft_p50_ms"] == 100.0
    assert found["itl_p99_ms"] == 100.0
    assert (found["requests"], found["errors"]) == (2, 1)
