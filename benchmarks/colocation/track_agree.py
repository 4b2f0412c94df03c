"""Whether outside tools measure the same latencies as our own client: all of them, in turn, on one idle vLLM.

    python -m benchmarks.colocation agree --json [--engine fixed] [--clients ours,vllm,aiperf] [--blocks 4]

Each block has one list of arrivals, which every client replays straight to the engine, without a gateway and without batch work.
The order changes from block to block. `ours_again` is our own client a second time. If the two differ by more than 5 %, `quiet`
is false: the machine does too much else to tell clients apart.

With `--engine fixed` the engine is a fake that waits 200 ms before the first token and 50 ms before each further one. It needs no
model, and shows on a busy machine too whether the clients mean the same by their figures.

`outside_client_agreement.<client>` has the ratio of each percentile to that of our client (TTFT and ITL at p50, p95 and p99), and
whether all of them are within 5 %. If they are not, use the figures of both.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from app import processes
from benchmarks.colocation import gpu_model, outside_clients
from benchmarks.colocation.outside_clients import OURS, Client, ToolError
from benchmarks.colocation.outside_results import lags
from benchmarks.colocation.real_system import MODEL, bare_engine
from benchmarks.colocation.result_table import LATENCIES
from benchmarks.colocation.sync_callers import Call
from benchmarks.colocation.target import COMPLETIONS, Target
from benchmarks.colocation.tokenizer import tokenizer_of
from benchmarks.colocation.workloads import short_chats

WITHIN = 0.05
FIXED = (0.2, 0.05)  # seconds before the first token, and before each further one
AGAIN = "ours_again"
WARM_UP = 12  # requests before the first block


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this track."""
    command.add_argument("--model", default=MODEL, help=f"model of the catalogue ({MODEL})")
    command.add_argument(
        "--engine", choices=("vllm", "fixed"), default="vllm", help="a real engine or fixed delays (vllm)"
    )
    command.add_argument("--clients", default=",".join(outside_clients.NAMES), help="clients, separated by commas")
    command.add_argument("--blocks", type=int, default=4, help="lists of arrivals (4)")
    command.add_argument("--arrivals", type=int, default=60, help="arrivals per list (60)")
    command.add_argument("--rate", type=float, default=3.0, help="requests per second (3)")
    command.add_argument("--words", type=int, default=12, help="mean words of a prompt (12)")
    command.add_argument("--tokens", type=int, default=6, help="mean tokens of an answer (6)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Figures of each client, and their agreement. With --quick: one short list on the fake engine."""
    if options.quick:
        options.engine, options.blocks, options.arrivals = "fixed", 1, 20
    folder = Path(tempfile.mkdtemp(prefix="agree-"))
    try:
        return _agreed(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _agreed(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    clients, missing = {}, {}
    if options.engine == "fixed":
        gpu_model.make(folder, gpu_model.SIZES["small"])
        tokenizer = folder / gpu_model.MODEL
    else:
        tokenizer = tokenizer_of(options.model)
    for name in options.clients.split(","):
        try:
            clients[name] = outside_clients.client(name, tokenizer)
        except ToolError as error:
            missing[name] = str(error)
    clients[AGAIN] = outside_clients.client(OURS, tokenizer)
    seen, late = asyncio.run(_measured(options, clients, folder, missing))
    rows = {name: figures(calls) | {"lag_p99_ms": _ms(late[name], 99)} for name, calls in seen.items()}
    agreed = agreement(rows)
    return {
        "engine": options.engine,
        "arrivals": f"Poisson, {options.blocks} lists of {options.arrivals}, {options.rate} requests/s",
        "clients": {name: clients[name].described | row for name, row in rows.items()},
        "outside_client_agreement": agreed,
        "quiet": agreed.get(AGAIN, {}).get("within_5_percent", False),
        "not_run_clients": missing,
        "arms": {},
    }


async def _measured(
    options: argparse.Namespace, clients: Mapping[str, Client], folder: Path, missing: dict[str, str]
) -> tuple[dict[str, list[Call]], dict[str, list[float]]]:
    seen: dict[str, list[Call]] = {}
    late: dict[str, list[float]] = {}
    async with _engine(options, folder) as url:
        target = Target(f"{url}/v1", COMPLETIONS, options.model)
        await clients[AGAIN].call(target, _due(options, 0, WARM_UP), salt=0)
        for block in range(options.blocks):
            due = _due(options, block + 1, options.arrivals)
            for place, name in enumerate(in_turn(list(clients), block)):
                if name in missing:
                    continue
                try:
                    calls = await clients[name].call(target, due, salt=1 + block * len(clients) + place)
                except ToolError as error:
                    missing[name] = str(error)
                    continue
                seen.setdefault(name, []).extend(calls)
                late.setdefault(name, []).extend(lags(calls, due))
                print(f"block {block + 1}, {name}: {figures(calls)}", file=sys.stderr, flush=True)
    return seen, late


@asynccontextmanager
async def _engine(options: argparse.Namespace, folder: Path) -> AsyncIterator[str]:
    if options.engine == "vllm":
        async with bare_engine(folder, options.model, policy="priority") as url:
            yield url
        return
    port = processes.free_port()
    longest = str(2 * options.tokens)
    delays = ("--latency", str(FIXED[0]), "--token-seconds", str(FIXED[1]), "--answer-tokens", longest)
    command = [sys.executable, "-m", "benchmarks.gateway.timed_engine", "--port", str(port), *delays]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout
        await process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


def _due(options: argparse.Namespace, block: int, count: int) -> list[Any]:
    return short_chats("poisson", count, options.rate, options.words, options.tokens, options.seed * 100 + block)


def in_turn(names: Sequence[str], block: int) -> list[str]:
    """The order of a block: rotated by one place per pair of blocks, and reversed in every second one."""
    start = block // 2 % len(names)
    rotated = [*names[start:], *names[:start]]
    return rotated[::-1] if block % 2 else rotated


def figures(calls: Sequence[Call]) -> dict[str, Any]:
    """Percentiles in milliseconds, from the moment of sending, and counts."""
    first = [call.first - call.sent for call in calls if call.first is not None]
    gaps = [gap for call in calls for gap in call.gaps]
    found: dict[str, Any] = {f"{kind}_p{q}_ms": _ms(first if kind == "ttft" else gaps, q) for kind, q in LATENCIES}
    return found | {"requests": len(calls), "errors": sum(bool(call.error) for call in calls)}


def agreement(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each other client: the ratio of each percentile to ours, and whether all of them are within 5 %."""
    found: dict[str, dict[str, Any]] = {}
    for name, row in rows.items():
        if name == OURS or OURS not in rows:
            continue
        keys = [f"{kind}_p{q}" for kind, q in LATENCIES]
        pairs = {key: (row[f"{key}_ms"], rows[OURS][f"{key}_ms"]) for key in keys}
        ratios = {key: round(a / b, 3) if a is not None and b else None for key, (a, b) in pairs.items()}
        within = all(ratio is not None and abs(ratio - 1) <= WITHIN for ratio in ratios.values())
        found[name] = {**ratios, "within_5_percent": within}
    return found


def _ms(samples: Sequence[float], q: int) -> float | None:
    return round(float(np.percentile(samples, q)) * 1e3, 2) if samples else None
