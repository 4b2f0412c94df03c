"""Whether the figures of the real engine meet the targets, each with the numbers that decide it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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
    a, b = _samples(alone, kind), _samples(ours, kind)
    chance, count = np.random.default_rng(7), min(len(a), len(b))
    draws = []
    for _ in range(DRAWS):
        pick = chance.integers(0, count, count)
        draws.append(_percentile([b[i] for i in pick], q) / _percentile([a[i] for i in pick], q))
    low, high = np.percentile(draws, (2.5, 97.5))
    return round(_percentile(b, q) / _percentile(a, q), 3), round(float(low), 3), round(float(high), 3)


def _samples(calls: Sequence[Call], kind: str) -> list[Sequence[float]]:
    if kind == "ttft":
        return [[call.ttft] if call.ttft is not None else [] for call in calls]
    return [call.gaps for call in calls]


def _percentile(samples: Sequence[Sequence[float]], q: int) -> float:
    return float(np.percentile(np.concatenate([np.asarray(s, dtype=float) for s in samples]), q))
