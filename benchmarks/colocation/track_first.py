"""The first caller after a pause, at an attached engine of 16 slots with default settings, beside batch work and alone.

    python -m benchmarks.colocation first --json [--callers 30] [--pause 3]

Two engines, one after the other: `plain`, vLLM as it comes, and `plugin`, with our scheduler inside. Each gets `--callers`
requests straight to it and as many through the gateway, in turns, each after `--pause` seconds without any; first alone, then
beside a batch that never runs out. Nobody tells Slackwater how many requests the engine runs at once.

`first_<engine>_<route>_x`: the median time to the first token beside batch work, divided by that alone, with its 95 % interval.
`most_waiting`: the most requests that waited inside the engine when a caller was sent.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.colocation.engine_verdict import ratio
from benchmarks.colocation.real_system import MODEL, System, bare_engine
from benchmarks.colocation.sync_callers import Call, call_all
from benchmarks.colocation.target import CHAT, Target
from benchmarks.colocation.track_attached import SCHEDULER, SETTING
from benchmarks.colocation.workloads import Arrival

SLOTS = 16
WARM_SECONDS = 20.0  # in which the number of slots is found
WORDS, TOKENS = 12, 6  # of a caller
BATCH_WORDS, BATCH_TOKENS = 40, 64
ENGINES = ("plain", "plugin")
ROUTES = ("direct", "gateway")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this track."""
    command.add_argument("--model", default=MODEL, help=f"model of the catalogue ({MODEL})")
    command.add_argument(
        "--callers", type=int, default=30, help="callers of each route, alone and beside batch work (30)"
    )
    command.add_argument("--pause", type=float, default=3.0, help="seconds without a caller before each (3)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The ratios of both engines."""
    if options.quick:
        options.callers, options.pause = 2, 0.5
    folder = Path(tempfile.mkdtemp(prefix="first-"))
    folder.chmod(0o755)
    try:
        found: dict[str, Any] = {"slots": SLOTS, "callers": options.callers, "pause_s": options.pause, "arms": {}}
        for name in ENGINES:
            found |= asyncio.run(_measured(name, folder / name, options))
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _measured(name: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    async with _attached(name, folder, options.model) as system:
        routes = {"direct": Target(f"{system.engine}/v1", CHAT, options.model), "gateway": system.target()}
        await _calls(system, routes, 2, 0.0, salt=0)  # which compile and fill caches
        alone, _ = await _calls(system, routes, options.callers, options.pause, salt=1)
        async with system.backlog(BATCH_WORDS, BATCH_TOKENS, salt=1):
            await asyncio.sleep(WARM_SECONDS)
            beside, waiting = await _calls(system, routes, options.callers, options.pause, salt=2)
    return compared(name, alone, beside) | {f"{name}_most_waiting": waiting}


@asynccontextmanager
async def _attached(name: str, folder: Path, model: str) -> AsyncIterator[System]:
    """An installation attached to an engine, with default settings but for the plug-in's folder."""
    arguments, environment, changes = ["--max-num-seqs", str(SLOTS)], dict[str, str](), dict[str, str]()
    if name == "plugin":
        pages = folder / "pages"
        pages.mkdir(mode=0o700, parents=True)
        arguments += ["--scheduler-cls", SCHEDULER]
        environment["SLACKWATER_PAGE_DIR"] = changes[SETTING] = str(pages)
    policy = "priority" if name == "plugin" else "fcfs"
    engine = bare_engine(folder / "engine", model, policy=policy, arguments=arguments, environment=environment)
    async with engine as url, System(folder / "system", model, url, **changes) as system:
        yield system


async def _calls(
    system: System, routes: dict[str, Target], count: int, pause: float, *, salt: int
) -> tuple[dict[str, list[Call]], int]:
    """So many callers of each route, in turns; and the most requests that waited inside the engine before one."""
    calls: dict[str, list[Call]] = {route: [] for route in routes}
    waiting = 0
    for number in range(count):
        for place, (route, target) in enumerate(routes.items()):
            await asyncio.sleep(pause)
            waiting = max(waiting, round((await system.gauges()).waiting))
            calls[route] += await call_all(
                target, [Arrival(0.0, WORDS, TOKENS)], salt=(salt * 1000 + number) * 2 + place
            )
    return calls, waiting


def compared(name: str, alone: dict[str, list[Call]], beside: dict[str, list[Call]]) -> dict[str, Any]:
    """The calls of each route beside batch work as a multiple of those alone."""
    found: dict[str, Any] = {}
    for route in ROUTES:
        value, low, high = ratio(alone[route], beside[route], "ttft", 50)
        found[f"first_{name}_{route}_x"] = {"value": value, "interval_95": [low, high]}
        found[f"first_{name}_{route}_ms"] = {"alone": _median(alone[route]), "beside": _median(beside[route])}
        failed = [call.error for call in (*alone[route], *beside[route]) if call.error]
        if failed:
            print(f"{name}, {route}: {len(failed)} failed, the first by {failed[0]}", file=sys.stderr, flush=True)
        found[f"first_{name}_{route}_errors"] = len(failed)
    return found


def _median(calls: Sequence[Call]) -> float | None:
    times = sorted(call.ttft for call in calls if call.ttft is not None)
    return round(1000 * times[len(times) // 2], 1) if times else None
