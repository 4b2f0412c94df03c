"""OpenAI's batch API on this machine: large files in and out, and a batch on a slow engine, beside AIBrix and `vllm run-batch`.

    python -m benchmarks.openai_batch --json [--quick] [--lines N] [--only ARM[,ARM…]] [--database-url postgresql://…]

files       `validate_lines_s`: `POST /v1/files`, which checks every line while it arrives; `queue_lines_s`: `POST /v1/batches`,
            which reads the file again and queues it; `in_progress_lines_s`: both, from the first byte to `in_progress`.
            `first_result_s`: from the create's first byte until a result can be read. `download_lines_s`: an output file of
            as many lines of about 1 KB. `…rss_growth_mb`: by how much the API process grew at most; `…_cpu_s`: lines per
            second of its CPU time
throughput  one batch on a fake engine of 200 ms a request, at equal slots, from upload to the end; `…_wide`: at more slots,
            where the engine is no longer what limits
crash       SIGKILL to our worker, to the peer's service, when half is answered; then start it again. `reexecuted`: answered by
            the engine more than once; `begun_again`: also those that had been cut off
runbatch    SIGKILL to `vllm run-batch` with the smallest model of the catalogue

Everything runs as real processes; the client is OpenAI's. AIBrix is installed once in a folder of the user's cache. Progress goes
to stderr, with the load average in front; the last line of stdout is one JSON object. What could not run is null, with a note.
"""

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from benchmarks.harness import Testbed, open_testbed, say
from benchmarks.machine import describe
from benchmarks.openai_batch import aibrix, run_batch
from benchmarks.openai_batch.crash import crash
from benchmarks.openai_batch.files import files
from benchmarks.openai_batch.services import OURS, PEER, SHIPPED, throughput

SLOTS, WIDE_SLOTS = 64, 512


@dataclass(frozen=True)
class BatchFileSizes:
    """How much of everything."""

    lines: int = 50_000
    line_bytes: int = 1024
    requests: int = 2000
    rounds: int = 3


QUICK = BatchFileSizes(lines=2000, requests=300, rounds=1)

NOTES = [
    "AIBrix outside Kubernetes has no engine but an echo; the engine's address was put in its place in its own process.",
    "`…_wide`: AIBrix's HTTP client opens at most 100 connections; one for each slot was no faster.",
    "At 64 slots of 200 ms nobody can be faster than `engine_limit_req_s`; `…_wide` tells what the services themselves can do.",
    "AIBrix: objects in local files, states in Redis without persistence, one process; what we store is durable in PostgreSQL.",
    "Ours in `ours_req_s` and `ours_lost…`: headroom=static and no slot reserved, like the peer; `ours_measured…`: as shipped.",
    f"AIBrix was asked for {aibrix.LOCK_SECONDS} s request timeouts, which are also the locks it waits for after a crash; "
    "its default is 600 s. Our worker's lease is the default.",
    "The output file's lines are results stored by workers without an engine; all else in `files` is the whole installation.",
]
AIBRIX_KEYS = ("aibrix_req_s", "aibrix_lost", "aibrix_duplicated", "aibrix_reexecuted")

Figures = dict[str, Any]


def throughput_at_both_sizes(testbed: Testbed, sizes: BatchFileSizes, peer: bool) -> Figures:
    """At equal slots, and at so many that the services are what limits."""
    names = [OURS, SHIPPED, *([PEER] if peer else [])]
    figures = throughput(testbed, sizes.requests, SLOTS, sizes.rounds, names)
    wide = throughput(testbed, sizes.requests, WIDE_SLOTS, sizes.rounds, [OURS, *names[2:]])
    return figures | {f"{key}_wide": value for key, value in wide.items()}


def crashes(testbed: Testbed, sizes: BatchFileSizes, peer: bool) -> Figures:
    """Each service once."""
    found = [crash(testbed, name, sizes.requests, SLOTS) for name in ([OURS, PEER] if peer else [OURS])]
    return {key: value for figures in found for key, value in figures.items()}


def arms(sizes: BatchFileSizes, peer: bool) -> dict[str, Callable[[Testbed], Figures]]:
    """Every arm by its name, in the order in which they run."""
    return {
        "files": lambda testbed: files(testbed, sizes.lines, sizes.line_bytes, SLOTS),
        "throughput": lambda testbed: throughput_at_both_sizes(testbed, sizes, peer),
        "crash": lambda testbed: crashes(testbed, sizes, peer),
        "runbatch": lambda testbed: run_batch.killed(testbed.folder),
    }


def run(options: argparse.Namespace) -> Figures:
    """All arms, or those asked for."""
    given = QUICK if options.quick else BatchFileSizes()
    sizes = BatchFileSizes(options.lines or given.lines, options.line_bytes, given.requests, given.rounds)
    names = list(arms(sizes, True))
    wanted = options.only.split(",") if options.only else names
    if unknown := set(wanted) - set(names):
        raise SystemExit(f"no such arm: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    reason = aibrix.unavailable() if {"throughput", "crash"} & set(wanted) else None
    table = arms(sizes, reason is None)
    began, loads, notes = monotonic(), {}, [*NOTES, *([reason] if reason else [])]
    found: Figures = dict.fromkeys(AIBRIX_KEYS)
    with open_testbed(options.database_url) as testbed:
        for name in wanted:
            loads[name] = round(os.getloadavg()[0], 2)
            say(f"{name} …")
            figures = table[name](testbed)
            notes += figures.pop("notes", [])
            found |= figures
            testbed.clear()
    head = {"benchmark": "openai_batch", "quick": options.quick, "aibrix_version": None if reason else aibrix.VERSION}
    ends = {"load_average_at_start": loads, "seconds": round(monotonic() - began)}
    return {**head, **found, **ends, "notes": notes, "machine": describe()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.openai_batch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="for uniformity; stdout always ends in one JSON line")
    parser.add_argument("--quick", action="store_true", help="small and short: shows that it works, measures nothing")
    parser.add_argument("--lines", type=int, default=0, help="of the large file; 50000 if not given, with --quick 2000")
    parser.add_argument("--line-bytes", type=int, default=BatchFileSizes.line_bytes, help="of each of its lines")
    parser.add_argument("--only", default="", help="arms to run, separated by commas")
    parser.add_argument("--database-url", default="", help="a PostgreSQL server to use instead of an embedded one")
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
