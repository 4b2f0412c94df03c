"""The scheduler inside an engine that Slackwater did not start (attached L2), against the same in an engine that it manages.

    python -m benchmarks.colocation attached --json [--pairs 4]

Both engines and installations are up for the whole run, and take turns on the same arrivals beside the same batch work. The
attached engine is a vLLM server with our scheduler class and SLACKWATER_PAGE_DIR, the folder that its worker shares.

After each run the page must say that our scheduler shares the steps; otherwise there are no figures.

`attached_l2_harvest_ratio`: batch tokens of the attached side, divided by those of the managed one. `attached_<latency>_x`: the
ratio of the percentile, with its 95 % interval.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from app.settings import Settings
from benchmarks.colocation.driven import drive
from benchmarks.colocation.engine_verdict import ratio
from benchmarks.colocation.outside_clients import OURS, client
from benchmarks.colocation.real_system import MODEL, System, bare_engine
from benchmarks.colocation.run_samples import RunSamples
from benchmarks.colocation.sync_callers import Call, call_all
from benchmarks.colocation.workloads import short_chats
from workers.engine.page_folder import PageFolder

SETTING = "page_dir"
SCHEDULER = "workers.engine.scheduler.HarvestScheduler"
WARM_SECONDS = 8.0
SIDES = ("managed", "attached")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this track."""
    command.add_argument("--model", default=MODEL, help=f"model of the catalogue ({MODEL})")
    command.add_argument("--pairs", type=int, default=4, help="pairs of runs (4)")
    command.add_argument("--arrivals", type=int, default=75, help="arrivals per run (75)")
    command.add_argument("--rate", type=float, default=3.0, help="synchronous requests per second (3)")
    command.add_argument("--words", type=int, default=12, help="mean words of a synchronous prompt (12)")
    command.add_argument("--tokens", type=int, default=6, help="mean tokens of a synchronous answer (6)")
    command.add_argument("--batch-words", type=int, default=40, help="words of a batch prompt (40)")
    command.add_argument("--batch-tokens", type=int, default=64, help="tokens of a batch answer (64)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The ratios, or the reason for which nothing was run."""
    if SETTING not in Settings.model_fields:
        return {"not_run": f"this version has no setting `{SETTING}`: an attached engine gets L1", "arms": {}}
    if options.quick:
        options.pairs, options.arrivals = 1, 20
    folder = Path(tempfile.mkdtemp(prefix="attached-"))
    folder.chmod(0o755)
    try:
        return {**asyncio.run(_measured(options, folder)), "arms": {}}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _measured(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    runs: dict[str, list[RunSamples]] = {side: [] for side in SIDES}
    calls: dict[str, list[Call]] = {side: [] for side in SIDES}
    pages = folder / "pages"
    pages.mkdir(mode=0o700)
    async with AsyncExitStack() as stack:
        engine = bare_engine(
            folder / "engine",
            options.model,
            policy="priority",
            arguments=("--scheduler-cls", SCHEDULER),
            environment={"SLACKWATER_PAGE_DIR": str(pages)},
        )
        url = await stack.enter_async_context(engine)
        changes = {SETTING: str(pages), "engine_slots": 32}
        systems = {
            "managed": await stack.enter_async_context(System(folder / "managed", options.model)),
            "attached": await stack.enter_async_context(System(folder / "attached", options.model, url, **changes)),
        }
        for system in systems.values():
            async with system.backlog(options.batch_words, options.batch_tokens, salt=0):
                await call_all(system.target(), _due(options, 0, 12), salt=0)
        for pair in range(options.pairs):
            due = _due(options, pair + 1, options.arrivals)
            for side in SIDES if pair % 2 == 0 else SIDES[::-1]:
                system, salt = systems[side], pair + 1
                async with system.backlog(options.batch_words, options.batch_tokens, salt=salt):
                    await asyncio.sleep(WARM_SECONDS)
                    block = await drive(system, client(OURS, Path()), due, salt=salt)
                    ruled = side == "managed" or rules(pages)
                if not ruled:
                    return {"not_run": f"pair {pair + 1}: the attached engine's page does not say that L2 rules"}
                runs[side].append(block.outcome)
                calls[side] += block.calls
                print(
                    f"pair {pair + 1}, {side}: {block.outcome.output_tokens} batch tokens", file=sys.stderr, flush=True
                )
    return compared(runs, calls)


def rules(folder: Path) -> bool:
    """Whether the page in the folder says that our scheduler shares the steps."""
    pages = PageFolder(folder)
    pages.look()
    report = pages.pages[0].report() if pages.pages else None
    pages.close()
    return report is not None and report.planning and not report.silent


def _due(options: argparse.Namespace, pair: int, count: int) -> list[Any]:
    return short_chats("poisson", count, options.rate, options.words, options.tokens, options.seed * 100 + pair)


def compared(runs: dict[str, list[RunSamples]], calls: dict[str, list[Call]]) -> dict[str, Any]:
    """The attached side as a multiple of the managed one."""
    harvest = {
        side: sum(run.output_tokens for run in own) / sum(run.seconds for run in own) for side, own in runs.items()
    }
    found: dict[str, Any] = {
        "attached_l2_harvest_ratio": round(harvest["attached"] / harvest["managed"], 3) if harvest["managed"] else None,
        "batch_tok_s": {side: round(value, 1) for side, value in harvest.items()},
        "errors": {side: sum(bool(call.error) for call in own) for side, own in calls.items()},
    }
    for kind, q in (("ttft", 50), ("ttft", 95), ("itl", 50), ("itl", 95)):
        value, low, high = ratio(calls["managed"], calls["attached"], kind, q)
        found[f"attached_{kind}_p{q}_x"] = {"value": value, "interval_95": [low, high]}
    return found
