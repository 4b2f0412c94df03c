"""Whether the figures of the real engine meet the targets, each with the numbers that decide it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.colocation.result_table import Table
from benchmarks.colocation.sync_callers import Call

P95_X, P99_X, HARVEST = 1.25, 1.10, 0.60
DRAWS = 2000

Calls = Mapping[tuple[str, str], Sequence[Call]]


def on_engine(table: Table, calls: Calls, *, quick: bool) -> dict[str, Any]:
    """Each target that can be judged with the arms of the table."""
    lines: dict[str, Any] = {}
    for workload in table.get("ours", {}):
        alone, ours = calls.get(("sync_only", workload)), calls["ours", workload]
        if alone:
            for kind, q in (("ttft", 95), ("itl", 95), *(() if quick else (("ttft", 99), ("itl", 99)))):
                value, low, high = ratio(alone, ours, kind, q)
                limit = P95_X if q == 95 else P99_X
                line = {"holds": value <= limit, "value": value, "interval_95": [low, high], "at_most": limit}
                lines[f"{workload}_{kind}_p{q}_x"] = line
        lines |= _on_batch(table, workload)
    return lines


def _on_batch(table: Table, workload: str) -> dict[str, Any]:
    ours = table["ours"][workload]
    lines: dict[str, Any] = {}
    whole = table.get("batch_only", {}).get(workload)
    alone = table.get("sync_only", {}).get(workload)
    if whole and alone:
        floor = HARVEST * whole["batch_tok_s"] * alone["sync_idle_share"]
        holds = ours["batch_tok_s"] >= floor
        lines[f"{workload}_harvest"] = {"holds": holds, "batch_tok_s": ours["batch_tok_s"], "at_least": round(floor, 1)}
    statics = {name: rows[workload] for name, rows in table.items() if name.startswith("static_") and workload in rows}
    no_worse = {
        name: row["batch_tok_s"]
        for name, row in statics.items()
        if row["ttft_p95_x"] is not None
        and row["ttft_p95_x"] <= ours["ttft_p95_x"]
        and row["itl_p95_x"] <= ours["itl_p95_x"]
    }
    if statics:
        best = max(no_worse.values(), default=0.0)
        lines[f"{workload}_beats_static"] = {
            "holds": ours["batch_tok_s"] >= best,
            "batch_tok_s": ours["batch_tok_s"],
            "no_worse_static_caps": no_worse,
        }
    return lines


def ratio(alone: Sequence[Call], ours: Sequence[Call], kind: str, q: int) -> tuple[float, float, float]:
    """The ratio of the percentiles and its 95 % interval, by bootstrap over the arrivals, which both arms share."""
    a, b = _Samples(alone, kind), _Samples(ours, kind)
    chance, count = np.random.default_rng(7), min(len(alone), len(ours))
    draws = []
    for _ in range(DRAWS):
        pick = chance.integers(0, count, count)
        draws.append(b.percentile(pick, q) / a.percentile(pick, q))
    low, high = np.percentile(draws, (2.5, 97.5))
    value = b.percentile(np.arange(len(ours)), q) / a.percentile(np.arange(len(alone)), q)
    return round(value, 3), round(float(low), 3), round(float(high), 3)


class _Samples:
    """The samples of each call, one after the other: a call has one time to the first token, or none, and any number of gaps."""

    def __init__(self, calls: Sequence[Call], kind: str) -> None:
        listed = (
            [[call.ttft] if call.ttft is not None else [] for call in calls]
            if kind == "ttft"
            else [c.gaps for c in calls]
        )
        self._lengths = np.array([len(samples) for samples in listed], dtype=int)
        self._begins = np.cumsum(self._lengths) - self._lengths
        self._flat = np.array([sample for samples in listed for sample in samples], dtype=float)

    def percentile(self, calls: NDArray[np.int_], q: int) -> float:
        """Over the samples of these calls; a call that is named twice counts twice."""
        lengths = self._lengths[calls]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return float(np.percentile(self._flat[np.repeat(self._begins[calls], lengths) + within], q))
