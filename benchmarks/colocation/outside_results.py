"""What `vllm bench serve` and AIPerf write about each request, as calls of our own result table.

Both tools count the time to the first token from the moment at which they send a request. So does a call made here: `due` is
`sent`. Times are on the monotonic clock, which all processes of a machine share.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from benchmarks.colocation.sync_callers import Call
from benchmarks.colocation.workloads import Arrival


def of_vllm(result: Mapping[str, Any]) -> list[Call]:
    """The calls of a result file of `vllm bench serve --save-result --save-detailed` (vLLM 0.26 to 0.32), in order of sending.

    Raises KeyError if the file has no details.
    """
    columns = ("start_times", "ttfts", "itls", "output_lens", "errors")
    rows = zip(*(result[name] for name in columns), strict=True)
    return sorted((_vllm_call(*row) for row in rows), key=lambda call: call.sent)


def _vllm_call(sent: float, ttft: float, gaps: Sequence[float], tokens: int, error: str) -> Call:
    if error or not ttft:
        return Call(sent, sent, end=sent, error=error or "no token")
    first = sent + ttft
    return Call(sent, sent, first, first + sum(gaps), tokens, list(gaps))


def of_aiperf(lines: Iterable[str], wall_to_monotonic: float) -> list[Call]:
    """The calls of AIPerf's `profile_export.jsonl` (0.13), in order of sending, without those of its warm-up.

    `wall_to_monotonic`: seconds to add to a time of day.
    """
    records = [json.loads(line) for line in lines if line.strip()]
    measured = [record for record in records if record["metadata"].get("benchmark_phase", "profiling") == "profiling"]
    return sorted((_aiperf_call(record, wall_to_monotonic) for record in measured), key=lambda call: call.sent)


def _aiperf_call(record: Mapping[str, Any], offset: float) -> Call:
    metadata, metrics = record["metadata"], record.get("metrics") or {}
    sent = metadata["request_start_ns"] / 1e9 + offset
    if record.get("error") or "time_to_first_token" not in metrics:
        return Call(sent, sent, end=sent, error=json.dumps(record.get("error") or "no token"))
    first = sent + _seconds(metrics["time_to_first_token"])
    gaps = [gap * _unit(metrics["inter_chunk_latency"]) for gap in metrics["inter_chunk_latency"]["value"]]
    return Call(sent, sent, first, first + sum(gaps), len(gaps) + 1, gaps)


def _seconds(metric: Mapping[str, Any]) -> float:
    return float(metric["value"]) * _unit(metric)


def _unit(metric: Mapping[str, Any]) -> float:
    """Seconds per unit of the metric. Raises KeyError for an unknown unit."""
    return {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[metric["unit"]]


def since(calls: Sequence[Call], began: float) -> list[Call]:
    """The same calls with times counted from `began`."""
    for call in calls:
        call.due, call.sent = call.due - began, call.sent - began
        call.first = None if call.first is None else call.first - began
        call.end = None if call.end is None else call.end - began
    return list(calls)


def lags(calls: Sequence[Call], due: Sequence[Arrival]) -> list[float]:
    """By how many seconds each request was sent later than its arrival, if the first one was sent in time."""
    if not calls:
        return []
    begin = calls[0].sent - due[0].at
    return [call.sent - arrival.at - begin for call, arrival in zip(calls, due, strict=False)]


def token_times(call: Call) -> list[float]:
    """When each token of the call came."""
    return [] if call.first is None else list(accumulate([call.first, *call.gaps]))
