"""Whether the figures of the simulator meet the targets, each with the numbers that decide it."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.colocation.result_table import Figures, Table

L2_WORKLOADS = ("conversation", "burst", "burst_long")
BURSTS = ("burst", "burst_long")
L2_LATENCY_X, L2_HARVEST = 1.10, 0.70
L1_TTFT_X = 1.35
FAILS_X = 2.0  # with long outputs, priority alone must be at least this slow; otherwise the workload tests nothing
PLAN_US = 200.0

Point = tuple[float, float]  # batch tokens per second, TTFT p99 over alone
Line = list[Point]


def static_line(table: Table, workload: str) -> Line:
    """The points of the static caps in order, from no batch work to `priority`, whose cap is every slot."""
    caps = sorted((int(name.removeprefix("static_")), name) for name in table if name.startswith("static_"))
    names = ["sync_only", *(name for _, name in caps), "priority"]
    points = [_point(table[name][workload]) for name in names if workload in table.get(name, {})]
    return [point for point in points if point is not None]


def latency_at(line: Line, tokens: float) -> float | None:
    """The least TTFT p99 of the line at this throughput; None outside its range."""
    found = [
        low[1] + (high[1] - low[1]) * (tokens - low[0]) / (high[0] - low[0])
        for low, high in _segments(line)
        if low[0] != high[0] and min(low[0], high[0]) <= tokens <= max(low[0], high[0])
    ]
    return min(found, default=None)


def dominated(line: Line, point: Point) -> bool:
    """Whether a point of the line has strictly more tokens and a strictly lower TTFT p99."""
    return any(_beats(low, high, point) for low, high in _segments(line))


def _segments(line: Line) -> Iterator[tuple[Point, Point]]:
    return itertools.pairwise(line)


def _beats(low: Point, high: Point, point: Point) -> bool:
    """Each coordinate is better on an interval of the segment. The two intervals must overlap."""
    begin, end = 0.0, 1.0
    for start, slope in ((low[0] - point[0], high[0] - low[0]), (point[1] - low[1], low[1] - high[1])):
        if slope == 0:
            if start <= 0:
                return False
        elif slope > 0:
            begin = max(begin, -start / slope)
        else:
            end = min(end, -start / slope)
    return begin < end


def verdict(table: Table, itl_objective_ms: float, full_engine: Mapping[str, Figures]) -> dict[str, Any]:
    """Each target that can be judged with the arms and workloads of the table.

    `full_engine`: the figures of L2 with a request in every slot, by workload. They give the duration of a plan.
    """
    lines: dict[str, Any] = {}
    if "l2" in table:
        lines |= _on_l2(table, itl_objective_ms)
    if plans := [row for row in full_engine.values() if "plan_us_p50" in row]:
        p50, p99 = (max(row[f"plan_us_p{q}"] for row in plans) for q in (50, 99))
        lines["l2_plan_us"] = {"holds": p50 < PLAN_US, "p50": p50, "p99": p99, "below": PLAN_US}
    if "l1" in table:
        lines |= _on_l1(table)
    failing = table.get("priority", {}).get("burst_long", {}).get("ttft_p99_x")
    if failing is not None:
        lines["priority_fails_burst_long"] = {"holds": failing >= FAILS_X, "ttft_p99_x": failing, "at_least": FAILS_X}
    return lines


def _on_l2(table: Table, itl_objective_ms: float) -> dict[str, Any]:
    l2 = table["l2"]
    judged = [name for name in L2_WORKLOADS if name in l2]
    lines = {
        f"l2_{key}": _all_at_most({name: l2[name][key] for name in judged}, L2_LATENCY_X)
        for key in ("ttft_p99_x", "itl_p99_x")
    }
    harvest = {name: l2[name]["harvest"] for name in judged}
    lines["l2_harvest"] = {
        "holds": all(value is not None and value >= L2_HARVEST for value in harvest.values()),
        "values": harvest,
        "at_least": L2_HARVEST,
    }
    lines["l2_itl_p50_ms"] = _all_at_most({name: row["itl_p50_ms"] for name, row in l2.items()}, itl_objective_ms)
    lines["no_static_cap_beats_l2"] = _undominated(table)
    return lines


def _undominated(table: Table) -> dict[str, Any]:
    found = {}
    for workload, row in table["l2"].items():
        line, point = static_line(table, workload), _point(row)
        if point is not None and len(line) > 1:
            static = latency_at(line, point[0])
            found[workload] = {
                "l2": row["ttft_p99_x"],
                "static_at_equal_tokens": round(static, 3) if static is not None else None,
                "beaten": dominated(line, point),
            }
    return {"holds": bool(found) and not any(each["beaten"] for each in found.values()), "values": found}


def _on_l1(table: Table) -> dict[str, Any]:
    l1 = table["l1"]
    lines = {"l1_ttft_p99_x": _all_at_most({name: row["ttft_p99_x"] for name, row in l1.items()}, L1_TTFT_X)}
    found = {}
    for workload in BURSTS:
        point = _point(l1.get(workload, {}))
        static = latency_at(static_line(table, workload), point[0]) if point else None
        if point and static is not None:
            found[workload] = {"l1": point[1], "static_at_equal_tokens": round(static, 3), "better": point[1] < static}
    lines["l1_better_than_static_on_bursts"] = {
        "holds": bool(found) and all(each["better"] for each in found.values()),
        "values": found,
    }
    return lines


def _all_at_most(values: dict[str, float | None], limit: float) -> dict[str, Any]:
    holds = bool(values) and all(value is not None and value <= limit for value in values.values())
    return {"holds": holds, "values": values, "at_most": limit}


def _point(row: Figures) -> Point | None:
    latency = row.get("ttft_p99_x")
    return None if latency is None else (row["batch_tok_s"], latency)
