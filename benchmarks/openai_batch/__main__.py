"""Slackwater's implementation of OpenAI's batch API on this machine, compared with AIBrix and `vllm run-batch`.

    python -m benchmarks.openai_batch --json [--quick] [--lines N] [--only ARM[,ARM…]] [--database-url postgresql://…]

files       `validate_lines_s`: `POST /v1/files`, which validates each line as it arrives; `queue_lines_s`: `POST /v1/batches`,
            which reads the file again and queues it; `in_progress_lines_s`: both, from the first byte to `in_progress`.
            `first_result_s`: from the first byte of the create until a result can be read. `download_lines_s`: an output file of
            as many lines of about 1 KB. `…rss_growth_mb`: largest growth of the API process; `…_cpu_s`: lines per second
            of its CPU time
throughput  one batch on a fake engine of 200 ms a request, at equal slots, from upload to the end; `…_wide`: with more
            slots, so that the engine is not the limit
crash       SIGKILL to our worker, or to AIBrix, when half of the batch is answered, and a restart. `reexecuted`: requests
            that the engine answered more than once; `begun_again`: requests that it began more than once
runbatch    SIGKILL to `vllm run-batch` with the smallest model of the catalogue

All services are real processes, and the client is OpenAI's. AIBrix is installed once, in the user's cache folder. Progress goes
to stderr, after the load average. The last line of stdout is one JSON object. Figures of what could not run are null, with a
note.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks import command
from benchmarks.harness import Testbed, open_testbed
from benchmarks.openai_batch import aibrix, run_batch
from benchmarks.openai_batch.crash import crash
from benchmarks.openai_batch.files import files
from benchmarks.openai_batch.services import OURS, PEER, SHIPPED, throughput

SLOTS, WIDE_SLOTS = 64, 512


@dataclass(frozen=True)
class BatchFileSizes:
    """Sizes and durations of all arms."""

    lines: int = 50_000
    line_bytes: int = 1024
    requests: int = 2000
    rounds: int = 3


QUICK = BatchFileSizes(lines=2000, requests=300, rounds=1)

NOTES = [
    "Outside Kubernetes, AIBrix has only an echo engine. It was replaced by the fake engine in AIBrix's own process.",
    "`…_wide`: AIBrix's HTTP client opens at most 100 connections. With one for each slot it was not faster.",
    "With 64 slots of 200 ms the limit is `engine_limit_req_s`; `…_wide` shows the limit of the services.",
    "AIBrix: files on disk, states in Redis without persistence, one process. Slackwater stores everything in PostgreSQL.",
    "`ours_req_s` and `ours_lost…`: with headroom=static and no reserved slot, like AIBrix; `ours_measured…`: as shipped.",
    f"AIBrix runs with request timeouts of {aibrix.LOCK_SECONDS} s. After a crash it waits for locks of that duration; "
    "its default is 600 s. Our worker's lease is the default.",
    "The results in the output file come from workers without an engine. Otherwise `files` measures the whole installation.",
]
AIBRIX_KEYS = ("aibrix_req_s", "aibrix_lost", "aibrix_duplicated", "aibrix_reexecuted")

Figures = dict[str, Any]


def throughput_at_both_sizes(testbed: Testbed, sizes: BatchFileSizes, peer: bool) -> Figures:
    """With equal slots, and with so many that the services are the limit."""
    names = [OURS, SHIPPED, *([PEER] if peer else [])]
    figures = throughput(testbed, sizes.requests, SLOTS, sizes.rounds, names)
    wide = throughput(testbed, sizes.requests, WIDE_SLOTS, sizes.rounds, [OURS, *names[2:]])
    return figures | {f"{key}_wide": value for key, value in wide.items()}


def crashes(testbed: Testbed, sizes: BatchFileSizes, peer: bool) -> Figures:
    """Kill each service once."""
    found = [crash(testbed, name, sizes.requests, SLOTS) for name in ([OURS, PEER] if peer else [OURS])]
    return {key: value for figures in found for key, value in figures.items()}


def arms(sizes: BatchFileSizes, peer: bool) -> dict[str, Callable[[Testbed], Figures]]:
    """All arms by name, in the order in which they run."""
    return {
        "files": lambda testbed: files(testbed, sizes.lines, sizes.line_bytes, SLOTS),
        "throughput": lambda testbed: throughput_at_both_sizes(testbed, sizes, peer),
        "crash": lambda testbed: crashes(testbed, sizes, peer),
        "runbatch": lambda testbed: run_batch.killed(testbed.folder),
    }


def run(options: argparse.Namespace) -> Figures:
    """The wanted arms on one server."""
    given = QUICK if options.quick else BatchFileSizes()
    sizes = BatchFileSizes(options.lines or given.lines, options.line_bytes, given.requests, given.rounds)
    if options.quick:
        reason: str | None = "no peer runs with --quick"
    else:
        reason = aibrix.unavailable() if {"throughput", "crash"} & set(options.arms) else None
    with open_testbed(options.database_url) as testbed:
        found = command.in_turn(arms(sizes, reason is None), options.arms, testbed, after=testbed.clear)
    notes = [*NOTES, *([reason] if reason else []), *found.pop("notes", [])]
    version = None if reason else aibrix.VERSION
    return {"aibrix_version": version, **dict.fromkeys(AIBRIX_KEYS), **found, "notes": notes}


def flags(parser: argparse.ArgumentParser) -> None:
    """What only this benchmark has."""
    parser.add_argument("--lines", type=int, default=0, help="lines of the large file (50000; with --quick 2000)")
    parser.add_argument(
        "--line-bytes", type=int, default=BatchFileSizes.line_bytes, help="bytes of each of its lines (1024)"
    )


if __name__ == "__main__":
    command.main("openai_batch", __doc__, run, minutes=10, arms=arms(QUICK, True), database=True, flags=flags)
