"""Every arm on every workload in the simulator: vLLM's own scheduler on a simulated clock.

The workloads `poisson` and `onoff` run on a slow engine (40 ms for one token, as a CPU), and only if they are named.
"""

import argparse
import logging
import multiprocessing
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from app.settings import Settings
from benchmarks.colocation import frontier
from benchmarks.colocation.result_table import Figures, Table, figures, table_with_ratios, tabulate, with_ratios
from benchmarks.colocation.run_samples import RunSamples
from benchmarks.colocation.simulator_verdict import verdict
from benchmarks.colocation.workloads import Workload, slow_workloads, workloads

REFERENCES = ("sync_only", "priority")  # the ratios divide by their figures, so they always run
SEEDS = 3
ABLATED_WORKLOADS = ("conversation", "burst", "burst_long")


@dataclass(frozen=True, slots=True)
class Task:
    """One run of the simulator. `ablation` is empty if the run is none. `point`: of the frontier, with its settings of L2."""

    arm: str
    workload: str
    seed: int
    quick: bool
    trace: Path | None
    ablation: str = ""
    point: str = ""
    settings: tuple[tuple[str, Any], ...] = ()


# The arm and the conditions of each ablation. If it restarts the engine, so does its baseline.
ABLATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "l1_no_arrival_trigger": ("l1", {"arrival_trigger": False}),
    "l1_model_20_percent_high": ("l1", {"model_factor": 1.2}),
    "l1_model_20_percent_low": ("l1", {"model_factor": 0.8}),
    "l1_telemetry_1s_late": ("l1", {"telemetry_late": 1.0}),
    "l1_telemetry_5s_late": ("l1", {"telemetry_late": 5.0}),
    "l1_telemetry_frozen": ("l1", {"frozen": True}),
    "l1_engine_restart": ("l1", {"restart": True}),
    "l2_evict_instead_of_freeze": ("l2", {"freeze": False}),
    "l2_model_20_percent_high": ("l2", {"model_factor": 1.2}),
    "l2_model_20_percent_low": ("l2", {"model_factor": 0.8}),
    "l2_engine_restart": ("l2", {"restart": True}),
    "l2_every_slot_taken": ("l2", {"crowded": True}),
    "sync_only_engine_restart": ("sync_only", {"restart": True}),
}
FULL_ENGINE = "l2_every_slot_taken"  # also runs with --quick: it measures the duration of a plan
RESTARTED_BASE = "sync_only_engine_restart"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this track."""
    parser.add_argument("--arms", default="", help="only these, separated by commas; sync_only and priority always run")
    parser.add_argument("--workloads", default="", help="only these, separated by commas")
    parser.add_argument(
        "--frontier", action="store_true", help="L2 at several budgets instead: harvest against ITL p50"
    )
    parser.add_argument("--processes", type=int, default=2, help="number of simulations at the same time (2)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Figures, ablations (full form) and the verdict; or the frontier."""
    from benchmarks.colocation.policy_arms import arms

    if options.frontier:
        return _frontier(options)
    few = ("l1,l2", "poisson") if options.quick else ("", ",".join(workloads(quick=False)))
    chosen_arms = _chosen("arm", options.arms or few[0], list(arms()), REFERENCES)
    chosen_workloads = _chosen("workload", options.workloads or few[1], list(_known(options.quick)))
    tasks = list(_tasks(options, chosen_arms, chosen_workloads))
    done = _work(tasks, options.processes)
    plain = {(a, w): runs for (a, w, ablation), runs in done.items() if not ablation}
    table = table_with_ratios(tabulate({(a, w): plain[a, w] for a in chosen_arms for w in chosen_workloads}))
    ablations = _ablations(done)
    objective = Settings().itl_ceiling_ms
    return {
        "seeds": [task.seed for task in tasks if (task.arm, task.workload) == (tasks[0].arm, tasks[0].workload)],
        "arrivals": f"slices of {options.trace}" if options.trace else "generated from the fitted parameters",
        "itl_objective_ms": objective,
        "arms": table,
        "ablations": ablations,
        "verdict": verdict(table, objective, ablations.get(FULL_ENGINE, {})),
    }


def _frontier(options: argparse.Namespace) -> dict[str, Any]:
    """L2 at each point of the curve."""
    chosen = _chosen("workload", options.workloads or ",".join(frontier.WORKLOADS), list(_known(options.quick)))
    done = _work(list(_tasks(options, list(REFERENCES), chosen)), options.processes)
    table = table_with_ratios(tabulate({(arm, workload): done[arm, workload, ""] for arm, workload, _ in done}))
    named = dict(frontier.points(table["sync_only"][chosen[0]]["itl_p50_ms"]))
    tasks = [
        replace(task, point=point, settings=settings)
        for point, settings in named.items()
        for task in _tasks(options, ["l2"], chosen)
        if not task.ablation
    ]
    runs = {(point, workload): found for (_, workload, point), found in _work(tasks, options.processes).items()}
    return {"arms": table, "frontier": frontier.curve(table, runs, named)}


def _known(quick: bool) -> dict[str, Workload]:
    return workloads(quick) | slow_workloads(quick)


def _chosen(kind: str, wanted: str, known: list[str], always: tuple[str, ...] = ()) -> list[str]:
    names = {*wanted.split(","), *always} if wanted else set(known)
    if unknown := names - set(known):
        raise SystemExit(f"unknown {kind}: {', '.join(sorted(unknown))}; choose from {', '.join(known)}")
    return [name for name in known if name in names]


def _tasks(options: argparse.Namespace, chosen_arms: list[str], chosen_workloads: list[str]) -> Iterator[Task]:
    seeds = range(options.seed, options.seed + (1 if options.quick else SEEDS))
    for arm in chosen_arms:
        for workload in chosen_workloads:
            for seed in seeds:
                yield Task(arm, workload, seed, options.quick, options.trace)
    for name, (arm, _) in ABLATIONS.items():
        if (options.quick or options.arms) and name != FULL_ENGINE:
            continue
        for workload in ABLATED_WORKLOADS:
            if arm in chosen_arms and workload in chosen_workloads:
                yield Task(arm, workload, options.seed, options.quick, options.trace, name)


def _work(tasks: list[Task], processes: int) -> dict[tuple[str, str, str], list[RunSamples]]:
    """Outcomes by arm, workload and ablation, in the order of the seeds."""
    began, found = monotonic(), {}
    with multiprocessing.get_context("spawn").Pool(min(processes, len(tasks)), _quiet) as pool:
        for number, (task, outcome) in enumerate(pool.imap_unordered(_one, tasks), 1):
            found[task] = outcome
            print(
                f"{monotonic() - began:5.0f} s  {number}/{len(tasks)}  {_line(task, outcome)}",
                file=sys.stderr,
                flush=True,
            )
    ordered: dict[tuple[str, str, str], list[RunSamples]] = {}
    for task in tasks:
        ordered.setdefault((task.arm, task.workload, task.ablation or task.point), []).append(found[task])
    return ordered


def _quiet() -> None:
    logging.disable(logging.WARNING)  # vLLM warns in each process that there is no GPU


def _one(task: Task) -> tuple[Task, RunSamples]:
    from benchmarks.colocation.policy_arms import arms
    from benchmarks.colocation.simulation import Simulation
    from benchmarks.colocation.simulation_view import Conditions

    arm, workload = arms()[task.arm], _known(task.quick)[task.workload]
    broken = ABLATIONS[task.ablation][1] if task.ablation else {}
    conditions = Conditions(**broken, settings=task.settings)
    arrivals = workload.arrivals(task.seed, task.trace) if arm.synchronous else []
    return task, Simulation(arm, workload, arrivals, task.seed, conditions).run()


def _line(task: Task, outcome: RunSamples) -> str:
    row = figures([outcome])
    line = f"TTFT p99 {row['ttft_p99_ms']} ms, ITL p99 {row['itl_p99_ms']} ms, batch {row['batch_tok_s']} tok/s"
    return f"{task.ablation or task.point or task.arm} {task.workload} #{task.seed}: {line}"


def _ablations(done: dict[tuple[str, str, str], list[RunSamples]]) -> Table:
    """Ratios of each ablation to the reference arms on the arrivals of the first seed."""
    table: Table = {}
    for (_, workload, name), runs in done.items():
        if not name:
            continue
        first = tabulate({(arm, workload): done[arm, workload, ""][:1] for arm in REFERENCES})
        alone: Figures | None = None
        if ABLATIONS[name][1].get("restart"):
            alone = figures(done["sync_only", workload, RESTARTED_BASE])
        table.setdefault(name, {})[workload] = with_ratios(first, workload, figures(runs), alone)
    return table
