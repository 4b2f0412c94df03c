"""The figures of all runs in a table: percentiles over the seeds, and their ratios to synchronous requests alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.colocation.run_samples import RunSamples

LATENCIES = (("ttft", 50), ("ttft", 95), ("ttft", 99), ("itl", 50), ("itl", 95), ("itl", 99))
Figures = dict[str, Any]
Table = dict[str, dict[str, Figures]]  # by arm and workload


def figures(outcomes: Sequence[RunSamples]) -> Figures:
    """Absolute figures of one arm on one workload: milliseconds, tokens per second, and counts over all seeds."""
    seconds = sum(outcome.seconds for outcome in outcomes)
    found: Figures = {}
    for kind, quantile in LATENCIES:
        samples = np.concatenate([getattr(outcome, kind) for outcome in outcomes])
        found[f"{kind}_p{quantile}_ms"] = _percentile(samples, quantile, 1e3)
    found["batch_tok_s"] = round(sum(o.prompt_tokens + o.output_tokens for o in outcomes) / seconds, 1)
    found["batch_output_tok_s"] = round(sum(o.output_tokens for o in outcomes) / seconds, 1)
    found["wasted_tok_s"] = round(sum(o.wasted for o in outcomes) / seconds, 1)
    for count in ("unserved", "evicted", "preempted", "yields", "faults"):
        found[count] = sum(getattr(outcome, count) for outcome in outcomes)
    plans = np.concatenate([outcome.plan for outcome in outcomes])
    if len(plans):
        found |= {f"plan_us_p{q}": _percentile(plans, q, 1e6) for q in (50, 99)}
    return found


def with_ratios(table: Table, workload: str, found: Figures, alone: Figures | None = None) -> Figures:
    """The figures and their ratios: to synchronous requests alone (`_x`), and to the batch throughput of two other arms."""
    alone = alone or table.get("sync_only", {}).get(workload, {})
    ratios: Figures = {}
    for kind, quantile in LATENCIES:
        name = f"{kind}_p{quantile}"
        ratios[f"{name}_x"] = _ratio(found[f"{name}_ms"], alone.get(f"{name}_ms"), 3)
    for key, arm in (("harvest", "priority"), ("of_batch_only", "batch_only")):
        whole = table.get(arm, {}).get(workload, {}).get("batch_tok_s")
        ratios[key] = _ratio(found["batch_tok_s"], whole, 3)
    return {**ratios, **found}


def table_with_ratios(table: Table) -> Table:
    """Every arm and workload of the table with its ratios."""
    return {
        arm: {workload: with_ratios(table, workload, found) for workload, found in by_workload.items()}
        for arm, by_workload in table.items()
    }


def tabulate(outcomes: Mapping[tuple[str, str], Sequence[RunSamples]]) -> Table:
    """Figures by arm and workload."""
    table: Table = {}
    for (arm, workload), runs in outcomes.items():
        table.setdefault(arm, {})[workload] = figures(runs)
    return table


def _percentile(samples: NDArray[np.float64], quantile: int, scale: float) -> float | None:
    return round(float(np.percentile(samples, quantile)) * scale, 2) if len(samples) else None


def _ratio(value: float | None, whole: float | None, digits: int) -> float | None:
    return round(value / whole, digits) if value is not None and whole else None
