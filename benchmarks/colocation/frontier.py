"""The price of harvest as a curve: batch tokens against the median gap between synchronous tokens, at several step budgets."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.protect import BUDGETS
from benchmarks.colocation.result_table import Table, figures, with_ratios
from benchmarks.colocation.run_samples import RunSamples

TARGETS = (1.1, 1.25, 1.5, 2.0, 2.5)  # ITL p50, as multiples of its value without batch work
IDLE = 2.0  # idle steps may take this many times the ITL budget
PROMPT = ("prompt_stretch", 1.05)
WORKLOADS = ("conversation",)  # if none is named

Named = tuple[tuple[str, Any], ...]  # settings


def points(alone_ms: float) -> Iterator[tuple[str, Named]]:
    """The name and the settings of each point. `alone_ms`: ITL p50 without batch work, which the targets multiply."""
    for target in TARGETS:
        budget = round(target * alone_ms, 2)
        yield f"{target:g}", (("itl_budget_ms", budget), ("idle_step_ms", IDLE * budget), PROMPT)
    for name in BUDGETS:
        yield name, (("protect", name),)


def curve(
    table: Table, runs: Mapping[tuple[str, str], list[RunSamples]], named: dict[str, Named]
) -> list[dict[str, Any]]:
    """One row per point and workload: its settings and figures. `table`: sync_only and priority alone."""
    return [
        {
            "point": point,
            "workload": workload,
            "settings": dict(named[point]),
            **with_ratios(table, workload, figures(outcomes)),
        }
        for (point, workload), outcomes in runs.items()
    ]


def markdown(rows: list[dict[str, Any]]) -> str:
    """The curve as a table."""
    heads = ("TTFT p50", "TTFT p99", "ITL p50", "ITL p99")
    keys = ("ttft_p50_x", "ttft_p99_x", "itl_p50_x", "itl_p99_x")
    lines = ["| workload | point | " + " | ".join(f"{head} ×" for head in heads) + " | batch tok/s | of flood |"]
    lines.append("|---|---" + "|---:" * 6 + "|")
    for row in rows:
        cells = [f"{row[key]:.2f}" for key in keys] + [f"{row['batch_tok_s']:,.0f}", f"{row['harvest']:.2f}"]
        lines.append(f"| {row['workload']} | {row['point']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
