"""vLLM with a real model on this machine, inside a whole installation. Callers use its gateway.

Every arm serves the same arrivals. The backlog of batch work never ends. The default model is SmolLM2-135M, on a CPU.

sync_only, ours          one installation that manages its engine, as shipped
sync_plain               callers alone on a plain vLLM: shows the cost of our scheduler without batch work
priority, static_N, l1   a worker attached to a plain vLLM with priority scheduling; `priority` has no control
batch_only               as `priority`, without callers
fifo                     as `priority`, with first come, first served

--quick runs sync_only and ours in turn on one engine, and judges p95 with a bootstrap interval.
--keep stores each finished block. The full form takes hours; a stopped run continues from the stored blocks.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.colocation import outside_clients
from benchmarks.colocation.block_store import Block, BlockStore
from benchmarks.colocation.driven import drive, pause
from benchmarks.colocation.engine_verdict import on_engine
from benchmarks.colocation.outside_clients import NAMES, Client
from benchmarks.colocation.real_system import MODEL, System, bare_engine
from benchmarks.colocation.result_table import Table, figures, table_with_ratios
from benchmarks.colocation.run_samples import RunSamples
from benchmarks.colocation.sync_callers import Call, call_all
from benchmarks.colocation.tokenizer import tokenizer_of
from benchmarks.colocation.workloads import short_chats
from benchmarks.machine import describe

WARM_SECONDS = 8.0
BATCH_ONLY_SECONDS = 60.0  # per seed; short, because there are no rare events to wait for
BLOCKS, QUICK_ARRIVALS = 2, 30  # of each arm in the quick form, and of each block
FLOOD = 64
MANAGED = ("sync_only", "ours")
ALONE = ("sync_only", "sync_plain")
PLAIN = ("sync_plain", "batch_only", "static_2", "static_4", "static_8", "static_16", "l1", "priority")
ARMS = (*MANAGED, "fifo", *PLAIN)
KINDS = ("poisson", "onoff")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this track."""
    command.add_argument("--model", default=MODEL, help=f"model of the catalogue ({MODEL})")
    command.add_argument("--arms", default="", help=f"only these, separated by commas: {', '.join(ARMS)}")
    command.add_argument("--workloads", default="", help=f"only these, separated by commas: {', '.join(KINDS)}")
    command.add_argument(
        "--client", choices=NAMES, default=NAMES[0], help=f"who sends the requests: {', '.join(NAMES)}"
    )
    command.add_argument("--arrivals", type=int, default=0, help="arrivals per seed (quick: 30 per block; full: 334)")
    command.add_argument("--seeds", type=int, default=3, help="number of seeds in the full form (3)")
    command.add_argument("--rate", type=float, default=3.0, help="synchronous requests per second (3)")
    command.add_argument("--words", type=int, default=12, help="mean words of a synchronous prompt (12)")
    command.add_argument("--tokens", type=int, default=6, help="mean tokens of a synchronous answer (6)")
    command.add_argument("--batch-words", type=int, default=40, help="words of a batch prompt (40)")
    command.add_argument("--batch-tokens", type=int, default=64, help="tokens of a batch answer (64)")
    command.add_argument("--keep", type=Path, help="folder of finished blocks; a later run continues from them")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="setting of Slackwater for the arms l1 and ours; may be repeated",
    )


@dataclass
class ArmRuns:
    """All runs of one arm on one workload."""

    outcomes: list[RunSamples] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)  # share of time without a synchronous request, by run

    def add(self, block: Block) -> None:
        """One more run."""
        self.outcomes.append(block.outcome)
        self.calls += block.calls
        self.idle.append(block.idle)


Runs = dict[tuple[str, str], ArmRuns]


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Figures and verdict."""
    folder = Path(tempfile.mkdtemp(prefix="colocation-"))
    folder.chmod(0o755)
    try:
        seen = asyncio.run(_quick(options, folder) if options.quick else _full(options, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table: Table = {}
    for (arm, workload), runs in seen.items():
        table.setdefault(arm, {})[workload] = figures(runs.outcomes) | {
            "arrivals": len(runs.calls),
            "errors": sum(bool(call.error) for call in runs.calls),
            "sync_idle_share": round(float(np.mean(runs.idle)), 3),
        }
    return {
        "arrivals": "generated: Poisson, and on/off at twice the rate",
        **_client(options).described,
        "rate": options.rate,
        "arms": table_with_ratios(table),
        "verdict": on_engine(
            table_with_ratios(table), {key: runs.calls for key, runs in seen.items()}, quick=options.quick
        ),
    }


async def _quick(options: argparse.Namespace, folder: Path) -> Runs:
    seen: Runs = {}
    [workload] = (options.workloads or "poisson").split(",")
    count = options.arrivals or QUICK_ARRIVALS
    async with System(folder / "ours", options.model, **_changes(options)) as system:
        await _warm(system, options)
        for block in range(BLOCKS):
            order = ("sync_only", "ours") if block % 2 == 0 else ("ours", "sync_only")
            due = short_chats(workload, count, options.rate, options.words, options.tokens, options.seed * 100 + block)
            for arm in order:
                await _block(system, options, seen, arm, workload, due, block + 1)
    return seen


async def _full(options: argparse.Namespace, folder: Path) -> Runs:
    seen: Runs = {}
    kept = BlockStore(options.keep, _same(options))
    wanted = options.arms.split(",") if options.arms else list(ARMS)
    for arm in wanted:
        _add_kept(kept, options, seen, arm)
    left = [arm for arm in wanted if any(not kept.has(arm, *block) for block in _blocks(options))]
    managed = [arm for arm in MANAGED if arm in left]
    if managed:
        async with System(folder / "ours", options.model, **_changes(options)) as system:
            await _warm(system, options)
            await _all(system, options, seen, managed, kept)
    for policy, arms in (("priority", [a for a in left if a in PLAIN]), ("fcfs", [a for a in left if a == "fifo"])):
        if not arms:
            continue
        async with bare_engine(folder / policy, options.model, policy=policy) as url:
            for arm in arms:
                async with System(folder / arm, options.model, url, **_settings(arm, options)) as system:
                    await _warm(system, options)
                    await _all(system, options, seen, [arm], kept)
    return {(a, w): seen[a, w] for a in ARMS for w in KINDS if (a, w) in seen}


def _blocks(options: argparse.Namespace) -> list[tuple[str, int]]:
    """(workload, seed) of each block of an arm."""
    workloads = options.workloads.split(",") if options.workloads else KINDS
    return [(workload, seed) for seed in range(options.seed, options.seed + options.seeds) for workload in workloads]


def _same(options: argparse.Namespace) -> dict[str, Any]:
    """The options and the machine that all blocks of one folder share."""
    names = ("client", "model", "arrivals", "rate", "words", "tokens", "batch_words", "batch_tokens", "set")
    machine = {name: value for name, value in describe().items() if name != "load_average"}
    return {**{name: getattr(options, name) for name in names}, "machine": machine}


def _add_kept(kept: BlockStore, options: argparse.Namespace, seen: Runs, arm: str) -> None:
    for block in _blocks(options):
        if kept.has(arm, *block):
            seen.setdefault((arm, block[0]), ArmRuns()).add(kept.load(arm, *block))


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    return dict(setting.split("=", 1) for setting in options.set)


def _settings(arm: str, options: argparse.Namespace) -> dict[str, Any]:
    if arm == "l1":
        return {"engine_slots": 32, **_changes(options)}
    cap = int(arm.removeprefix("static_")) if arm.startswith("static_") else FLOOD
    return {"headroom": "static", "batch_max_in_flight": cap, "engine_slots": 32, "stale_seconds": 30}


async def _all(system: System, options: argparse.Namespace, seen: Runs, arms: Sequence[str], kept: BlockStore) -> None:
    for workload, seed in _blocks(options):
        due = short_chats(workload, options.arrivals or 334, options.rate, options.words, options.tokens, seed)
        for arm in arms:
            if not kept.has(arm, workload, seed):
                kept.store(arm, workload, seed, await _block(system, options, seen, arm, workload, due, seed))


async def _warm(system: System, options: argparse.Namespace) -> None:
    """Warm the engine and the step model up. These requests are not measured."""
    async with system.backlog(options.batch_words, options.batch_tokens, salt=0):
        due = short_chats("poisson", 12, options.rate, options.words, options.tokens, 0)
        await call_all(system.target(), due, salt=0)


async def _block(
    system: System, options: argparse.Namespace, seen: Runs, arm: str, workload: str, due: Sequence[Any], salt: int
) -> Block:
    """Run one arm on one list of arrivals, and add the result to `seen`."""
    async with AsyncExitStack() as stack:
        if arm not in ALONE:
            await stack.enter_async_context(system.backlog(options.batch_words, options.batch_tokens, salt=salt))
            await asyncio.sleep(WARM_SECONDS)
        if arm == "batch_only":
            block = await pause(system, min(due[-1].at, BATCH_ONLY_SECONDS))
        else:
            block = await drive(system, _client(options), due, salt=salt)
    seen.setdefault((arm, workload), ArmRuns()).add(block)
    row = figures([block.outcome])
    ttft, itl = (", ".join(f"{row[f'{kind}_p{q}_ms']}" for q in (50, 95, 99)) for kind in ("ttft", "itl"))
    line = f"TTFT p50, p95, p99 {ttft} ms, ITL {itl} ms"
    print(
        f"{arm} {workload} #{salt}: {line}, batch {row['batch_tok_s']} tok/s, {block.outcome.seconds:.0f} s",
        file=sys.stderr,
        flush=True,
    )
    return block


def _client(options: argparse.Namespace) -> Client:
    return outside_clients.client(options.client, tokenizer_of(options.model))
