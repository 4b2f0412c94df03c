"""What the outside tools write is read as calls: recorded files of real runs on vLLM for CPU."""

import json
from pathlib import Path

import pytest

from benchmarks.colocation import outside_results
from benchmarks.colocation.sync_callers import Call
from benchmarks.colocation.workloads import Arrival

RECORDED = Path(__file__).parent / "recorded"


def vllm():
    return json.loads((RECORDED / "vllm_bench_0.32.0.json").read_text())


def aiperf():
    return (RECORDED / "aiperf_0.13.0.jsonl").read_text().splitlines()


def test_calls_of_vllm_bench_serve():
    result = vllm()
    calls = outside_results.of_vllm(result)
    assert [call.tokens for call in calls] == [6, 4, 5]
    assert [call.ttft for call in calls] == pytest.approx(result["ttfts"])
    assert [call.sent for call in calls] == result["start_times"]
    assert [len(call.gaps) for call in calls] == [5, 3, 4]
    assert [call.end - call.sent for call in calls] == pytest.approx(result["latencies"])
    assert not any(call.error for call in calls)


def test_a_request_that_failed_has_no_latency():
    result = vllm()
    result["errors"][1], result["ttfts"][1], result["itls"][1] = "Service Unavailable", 0.0, []
    calls = outside_results.of_vllm(result)
    assert [bool(call.error) for call in calls] == [False, True, False]
    assert calls[1].ttft is None


def test_a_result_without_details_is_refused():
    result = vllm()
    del result["itls"]
    with pytest.raises(KeyError):
        outside_results.of_vllm(result)


def test_calls_of_aiperf():
    calls = outside_results.of_aiperf(aiperf(), 0.0)
    assert [call.tokens for call in calls] == [6, 4, 5]
    first = json.loads(aiperf()[0])
    assert calls[0].ttft == pytest.approx(first["metrics"]["time_to_first_token"]["value"] / 1e3, abs=1e-6)
    assert calls[0].gaps == pytest.approx([gap / 1e3 for gap in first["metrics"]["inter_chunk_latency"]["value"]])
    whole = first["metrics"]["request_latency"]["value"] / 1e3
    assert calls[0].end - calls[0].sent == pytest.approx(whole, abs=1e-3)


def test_the_warm_up_of_aiperf_is_left_out_and_its_errors_are_kept():
    warm, failed, good = (json.loads(line) for line in aiperf())
    warm["metadata"]["benchmark_phase"] = "warmup"
    failed["error"], failed["metrics"] = {"code": 503, "message": "busy"}, {}
    calls = outside_results.of_aiperf(map(json.dumps, (warm, failed, good)), 0.0)
    assert [bool(call.error) for call in calls] == [True, False]
    assert "busy" in calls[0].error


def test_the_clock_of_the_day_becomes_the_monotonic_one():
    [here, *_] = outside_results.of_aiperf(aiperf(), 0.0)
    [there, *_] = outside_results.of_aiperf(aiperf(), -here.sent + 5.0)
    assert there.sent == pytest.approx(5.0)
    [moved, *_] = outside_results.since([there], 3.0)
    assert (moved.sent, moved.due) == pytest.approx((2.0, 2.0))
    assert moved.ttft == pytest.approx(here.ttft, abs=1e-6)


def test_how_late_a_client_sends():
    due = [Arrival(1.0, 1, 1), Arrival(2.0, 1, 1), Arrival(4.0, 1, 1)]
    calls = [Call(7.0, 7.0), Call(8.1, 8.1), Call(10.0, 10.0)]
    assert outside_results.lags(calls, due) == pytest.approx([0.0, 0.1, 0.0])
    assert outside_results.lags([], due) == []


def test_when_each_token_came():
    assert outside_results.token_times(Call(0, 0, 1.0, 2.0, 3, [0.5, 0.5])) == [1.0, 1.5, 2.0]
    assert outside_results.token_times(Call(0, 0)) == []
