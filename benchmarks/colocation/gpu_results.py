"""What a run on a GPU has found: one file with a line for each finished piece, and the figures made of them."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.colocation import step_fit
from benchmarks.colocation.engine_profiles import EngineProfile
from benchmarks.colocation.engine_verdict import ratio
from benchmarks.colocation.gpu_model import GpuSize
from benchmarks.colocation.gpu_plan import ALONE, BATCH_ONLY, L2, RAMP, STEPS, Knee, Piece
from benchmarks.colocation.outside_results import token_times
from benchmarks.colocation.progress import grown
from benchmarks.colocation.result_table import Figures, Table, figures, with_ratios
from benchmarks.colocation.run_samples import RunSamples
from benchmarks.colocation.sync_callers import Call
from workers.engine.step_stats_receiver import StepStats

BASE = "sync_only"  # what tables call the callers alone
TTFT_P95_X = 1.10
Record = dict[str, Any]
Row = tuple[float, dict[str, Any]]  # seconds since the piece began, and the engine's counters


class PieceFile:
    """Finished pieces, a line each, on disk before the next one begins. A line that was cut by a kill is dropped."""

    def __init__(self, path: Path, same: dict[str, Any]) -> None:
        self._path = path
        self.records: list[Record] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = path.read_bytes() if path.exists() else b""
        kept = whole[: whole.rfind(b"\n") + 1]
        head, *records = [json.loads(line) for line in kept.splitlines()] or [None]
        if head is None:
            path.write_bytes(b"")
            self._append(same)
        elif head != json.loads(json.dumps(same)):
            raise SystemExit(f"{path} has pieces of another machine or of other options; choose another --out")
        elif kept != whole:
            path.write_bytes(kept)
        self.records += records

    def add(self, record: Record) -> None:
        """Store a finished piece."""
        self._append(record)
        self.records.append(record)

    def done(self) -> set[str]:
        """The names of the finished pieces."""
        return {record["piece"] for record in self.records}

    def of(self, arm: str) -> list[Record]:
        """The finished pieces of an arm."""
        return [record for record in self.records if record["arm"] == arm]

    def _append(self, value: dict[str, Any]) -> None:
        with self._path.open("ab") as file:
            file.write(json.dumps(value, separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def recorded(
    piece: Piece, calls: Sequence[Call], rows: Sequence[Row], steps: Sequence[StepStats], **more: Any
) -> Record:
    """A finished piece as it is stored. Times are in seconds, to a tenth of a millisecond."""
    listed = [{**asdict(call), "gaps": [round(gap, 4) for gap in call.gaps]} for call in calls]
    for call in listed:
        call |= {name: None if call[name] is None else round(call[name], 4) for name in ("due", "sent", "first", "end")}
    packed = [
        [round(s.at, 5), s.running, s.waiting, round(s.kv_usage, 5), s.prompt_tokens, s.generation_tokens]
        for s in steps
    ]
    head = {"piece": piece.name, "arm": piece.arm, "share": piece.share, "cycle": piece.cycle}
    return {**head, **more, "calls": listed, "rows": list(rows), "steps": packed}


def calls_of(record: Record) -> list[Call]:
    """The calls of a stored piece."""
    return [Call(**call) for call in record["calls"]]


def steps_of(records: Sequence[Record]) -> step_fit.Steps:
    """The steps of stored pieces."""
    return step_fit.Steps([([_step(row) for row in record["steps"]], record["kv_capacity"]) for record in records])


def _step(row: Sequence[Any]) -> StepStats:
    at, running, waiting, kv_usage, prompt, made = row
    return StepStats(at, 0, running, waiting, kv_usage, prompt, made, 0.0)


def samples(record: Record) -> RunSamples:
    """The samples of the turn of a piece. Batch tokens are those of the engine's counter without the callers' own."""
    calls, seconds = calls_of(record), record["seconds"]
    own = sum(0 <= at < seconds for call in calls for at in token_times(call))
    made = grown([(at, counters) for at, counters in record["rows"]], "generation_tokens", 0.0, seconds) - own
    counted = {name: record["worker"].get(name, 0) for name in ("wasted", "yields", "evicted", "faults")}
    return RunSamples(
        seconds=seconds,
        ttft=np.array([call.ttft for call in calls if call.ttft is not None]),
        itl=np.array([gap for call in calls for gap in call.gaps]),
        prompt_tokens=0,
        output_tokens=0 if record["arm"] == ALONE else max(0, round(made)),
        unserved=sum(call.ttft is None for call in calls),
        preempted=0,
        plan=np.array([]),
        **counted,
    )


def share_name(share: int) -> str:
    """The name of a load in tables."""
    return f"{share} % of the knee" if share else "no callers"


def table(records: Sequence[Record]) -> Table:
    """Figures by arm and load, over all cycles, with ratios to the callers alone."""
    found: Table = {}
    measured = [record for record in records if record["arm"] not in (STEPS, RAMP)]
    for arm, share in dict.fromkeys((record["arm"], record["share"]) for record in measured):
        own = [record for record in measured if (record["arm"], record["share"]) == (arm, share)]
        calls = [call for record in own for call in calls_of(record)]
        extra = {"cycles": len(own), "arrivals": len(calls), "errors": sum(bool(call.error) for call in calls)}
        name = BASE if arm == ALONE else arm
        found.setdefault(name, {})[share_name(share)] = figures([samples(record) for record in own]) | extra
    return {
        arm: {load: with_ratios(found, load, row) for load, row in by_load.items()} for arm, by_load in found.items()
    }


def verdict(records: Sequence[Record], whole: Table) -> dict[str, Any]:
    """Whether L2 meets the target at each load that has both, with all that belongs to the answer. `whole`: their table."""
    lines: dict[str, Any] = {}
    for share in dict.fromkeys(record["share"] for record in records if record["arm"] == L2):
        alone, ours = ([r for r in records if (r["arm"], r["share"]) == (arm, share)] for arm in (ALONE, L2))
        base, row = whole.get(BASE, {}).get(share_name(share)), whole[L2][share_name(share)]
        if not base or base["ttft_p95_ms"] is None or row["ttft_p95_ms"] is None:
            continue
        pairs = _paired(alone, ours)
        value, low, high = ratio(*pairs, "ttft", 95) if pairs[0] else (row["ttft_p95_x"], None, None)
        lines[f"ttft_p95_at_{share}"] = {
            "holds": value <= TTFT_P95_X and not base["unserved"] + row["unserved"],
            "value": value,
            "interval_95": [low, high],
            "at_most": TTFT_P95_X,
            **{
                f"{name}_ms": [base[f"{name}_ms"], row[f"{name}_ms"]]
                for name in ("ttft_p95", "ttft_p99", "itl_p50", "itl_p95", "itl_p99")
            },
            "batch_tok_s": row["batch_tok_s"],
            "unserved": [base["unserved"], row["unserved"]],
        }
    return lines


def _paired(alone: Sequence[Record], ours: Sequence[Record]) -> tuple[list[Call], list[Call]]:
    """The calls of cycles that both have, so that each arrival is in both."""
    both = {r["cycle"] for r in alone} & {r["cycle"] for r in ours}
    first, second = (
        [call for r in sorted(rs, key=_cycle) if r["cycle"] in both for call in calls_of(r)] for rs in (alone, ours)
    )
    return first, second


def _cycle(record: Record) -> int:
    cycle: int = record["cycle"]
    return cycle


def step_times(records: Sequence[Record], assumed: EngineProfile) -> dict[str, Any] | None:
    """The profile fitted to the steps of the first piece, and how wrong it and the assumed one are, there and on later pieces."""
    first = [record for record in records if record["arm"] == STEPS]
    fitted = step_fit.fitted(steps_of(first), assumed)
    if fitted is None:
        return None
    on = {"steps": first, "later pieces": [record for record in records if record["arm"] != STEPS]}
    seen = {name: steps for name, own in on.items() if len(steps := steps_of(own))}
    return {
        "fitted": step_fit.described(fitted),
        "assumed": step_fit.described(assumed),
        "fitted_errors": {name: step_fit.errors(fitted, steps) for name, steps in seen.items()},
        "assumed_errors": {name: step_fit.errors(assumed, steps) for name, steps in seen.items()},
    }


def profile_like(assumed: EngineProfile, size: GpuSize, kv_capacity: int, block: int) -> EngineProfile:
    """The assumed step times with the sizes of the running engine."""
    return replace(assumed, slots=size.slots, step_tokens=size.step_tokens, kv_blocks=max(1, kv_capacity // block))


def notes(size: GpuSize, records: Sequence[Record], found: Knee | None, fit: dict[str, Any] | None) -> list[str]:
    """Sentences above the tables: the knee, the fit, and how the run differs from llm-d-batch-gateway#491."""
    listed = []
    if found and found.base_ms is None:
        listed.append(
            f"Calls were not answered even at the beginning of the ramp, {found.rate:.1f} requests per second."
        )
    elif found:
        reached = "" if found.reached else ", the end of the ramp: the knee was not reached"
        start = f"TTFT p95 at the beginning of the ramp: {found.base_ms:.0f} ms." if found.base_ms else "It was given."
        listed.append(f"Knee: {found.rate:.1f} requests per second{reached}. {start}")
    if fit:
        for name, rows in fit["fitted_errors"].items():
            whole, before = rows["all"], fit["assumed_errors"][name]["all"]
            listed.append(
                f"Simulated step times on {name} ({whole['steps']} steps): fitted ones are off by {whole['error_p50_percent']} % "
                f"(median; p90 {whole['error_p90_percent']} %, all together {whole['total_percent']:+} %), "
                f"the assumed ones by {before['error_p50_percent']} % ({before['total_percent']:+} %)."
            )
    counted = ", ".join(dict.fromkeys(f"{r['arm']}@{r['share']}" for r in records if r["share"])) or "none"
    listed += [
        "Differs from llm-d-batch-gateway#491: one engine with random weights and another model; "
        f"pieces of {size.turn_seconds:.0f} s ({counted}) after {size.warm_seconds:.0f} s that are not counted; Poisson arrivals "
        "at constant rates; a backlog that does not run dry; batch tokens by the engine's counter.",
        "Every arm runs on one vLLM with our scheduler class, which lets vLLM schedule alone except in l2.",
    ]
    if size.name == "small":
        listed.append("Reduced size on a CPU, to try the script out: it says nothing about a GPU.")
    return listed


def line(record: Record) -> str:
    """A finished piece in one line."""
    if record["arm"] in (STEPS, RAMP):
        return f"{record['piece']}: {len(record['calls'])} calls, {len(record['steps'])} steps"
    row: Figures = figures([samples(record)])
    ttft, itl = (", ".join(f"{row[f'{kind}_p{q}_ms']}" for q in (50, 95, 99)) for kind in ("ttft", "itl"))
    rate = f"{record['rate']:.1f}/s: " if record["arm"] != BATCH_ONLY else ""
    return f"{record['piece']} {rate}TTFT {ttft} ms, ITL {itl} ms, batch {row['batch_tok_s']} tok/s"
