"""A Markdown table for each workload, and a picture of synchronous latency against batch throughput."""

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.colocation import frontier, pictures
from benchmarks.colocation.block_store import write_whole
from benchmarks.colocation.pictures import Level, Point
from benchmarks.colocation.result_table import LATENCIES, Figures, Table

_COLUMNS = (
    ("TTFT p50 ×", "ttft_p50_x", 2),
    ("TTFT p95 ×", "ttft_p95_x", 2),
    ("TTFT p99 ×", "ttft_p99_x", 2),
    ("ITL p50 ms", "itl_p50_ms", 1),
    ("ITL p50 ×", "itl_p50_x", 2),
    ("ITL p95 ×", "itl_p95_x", 2),
    ("ITL p99 ×", "itl_p99_x", 2),
    ("batch tok/s", "batch_tok_s", 0),
    ("of flood", "harvest", 2),
    ("of batch only", "of_batch_only", 2),
    ("wasted tok/s", "wasted_tok_s", 0),
    ("unserved", "unserved", 0),
    ("yielded", "yields", 0),
    ("evicted", "evicted", 0),
)


def write_result(folder: Path, found: dict[str, Any]) -> None:
    """Write result.json and table.md, each as a whole."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "result.json", json.dumps(found) + "\n")
    write_whole(folder / "table.md", markdown(found))


def draw(folder: Path, found: dict[str, Any]) -> None:
    """Write the pictures that a result has, one for each workload, if matplotlib is there."""
    try:
        if curve := found.get("frontier"):
            for workload in dict.fromkeys(row["workload"] for row in curve):
                mine = (row for row in curve if row["workload"] == workload)
                levels = [Level(row["point"], row["itl_p50_x"], row["harvest"]) for row in mine]
                pictures.levels(levels, folder / f"frontier-{workload}.png")
            return
        for workload in _workloads(found["arms"]):
            if points := shared(found["arms"], workload):
                pictures.sharing(points, folder / f"sharing-{workload}.png")
    except ImportError:
        print("no picture: matplotlib is not installed", file=sys.stderr)


def markdown(found: dict[str, Any]) -> str:
    """All tables and the verdict of a result."""
    table: Table = found["arms"]
    parts = [f"Client: {found['client']} {found['client_version']}."] if found.get("client") else []
    parts += ["\n".join(f"- {note}" for note in found["notes"])] if found.get("notes") else []
    parts += [_workload(table, workload) for workload in _workloads(table)]
    if found.get("clients"):
        parts.append(_clients(found["clients"], found["outside_client_agreement"]))
    if found.get("frontier"):
        parts.append(frontier.markdown(found["frontier"]))
    if found.get("not_run"):
        parts.append(f"Not run: {found['not_run']}.")
    if found.get("ablations"):
        parts.append(
            _rows("Ablations", {f"{n}, {w}": row for n, by in found["ablations"].items() for w, row in by.items()})
        )
    if found.get("verdict"):
        parts.append(_verdict(found["verdict"]))
    return "\n\n".join(parts) + "\n"


def _workloads(table: Table) -> list[str]:
    return list(dict.fromkeys(workload for by_workload in table.values() for workload in by_workload))


def _workload(table: Table, workload: str) -> str:
    alone = table.get("sync_only", {}).get(workload, {})
    ttft, itl = _cell(alone.get("ttft_p99_ms"), 0), _cell(alone.get("itl_p99_ms"), 1)
    title = f"{workload} (synchronous alone: TTFT p99 {ttft} ms, ITL p99 {itl} ms)"
    return _rows(title, {arm: by_workload[workload] for arm, by_workload in table.items() if workload in by_workload})


def _rows(title: str, rows: dict[str, Figures]) -> str:
    lines = [f"**{title}**", "", "| arm | " + " | ".join(name for name, *_ in _COLUMNS) + " |"]
    lines.append("|---" + "|---:" * len(_COLUMNS) + "|")
    for name, row in rows.items():
        cells = (_cell(row.get(key), digits) for _, key, digits in _COLUMNS)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _clients(rows: dict[str, Figures], agreement: dict[str, dict[str, Any]]) -> str:
    """The percentiles of each client on one idle engine."""
    names = [f"{kind} p{q}" for kind, q in LATENCIES]
    lines = [f"| client | {' | '.join(names).replace('ttft', 'TTFT').replace('itl', 'ITL')} | within 5 % |"]
    lines.append("|---" + "|---:" * (len(names) + 1) + "|")
    for name, row in rows.items():
        cells = [_cell(row[f"{column.replace(' ', '_')}_ms"], 1) for column in names]
        within = {True: "yes", False: "no", None: "–"}[agreement.get(name, {}).get("within_5_percent")]
        lines.append(f"| {name}: {row['client']} {row['client_version']} | {' | '.join(cells)} | {within} |")
    return "\n".join(lines)


def _verdict(verdict: dict[str, Any]) -> str:
    lines = ["**Verdict**", ""]
    for name, line in verdict.items():
        numbers = ", ".join(f"{key} {value}" for key, value in line.items() if key != "holds")
        lines.append(f"- {'holds' if line['holds'] else '**fails**'}: `{name}` ({numbers})")
    return "\n".join(lines)


def _cell(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def shared(table: Table, workload: str) -> list[Point]:
    """The ways to share an engine, as a picture shows them."""
    found = {arm: by_workload.get(workload, {}) for arm, by_workload in table.items() if arm != "sync_only"}
    return [
        Point(arm, row["batch_tok_s"], row["ttft_p99_x"])
        for arm, row in found.items()
        if row.get("ttft_p99_x") is not None
    ]
