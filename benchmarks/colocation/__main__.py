"""The latency that batch work adds to synchronous requests on one engine, and the batch throughput, for each policy.

    python -m benchmarks.colocation simulate --json [--quick] [--trace FILE] [--seed N] [--out FOLDER]
    python -m benchmarks.colocation simulate --frontier --json [--quick]
    python -m benchmarks.colocation simulate --arms l1,static_32 --workloads burst,burst_long --quick

simulate   vLLM's own scheduler under a simulated clock: deterministic, no GPU, no weights
engine     real vLLM with a real model on this machine, inside a whole installation
agree      our own client and outside tools on one idle vLLM: whether they measure the same
attached   the scheduler inside an attached engine, against the same in a managed one
first      the first caller after a pause, at an attached engine with default settings
gpu        an 8B model on a GPU, in pieces of some minutes; without a GPU, the result has `not_run`

Progress goes to stderr; the last line of stdout is one JSON object: `arms.<arm>.<workload>` with `ttft_p50_x`, `ttft_p99_x`,
`itl_p50_x`, `itl_p95_x`, `itl_p99_x` (divided by the figure of the same synchronous arrivals without batch work; `_ms` keys
are absolute), `batch_tok_s` (each prompt counts once), `harvest` (share of the batch throughput under priority scheduling
alone), `wasted_tok_s` (tokens computed twice); `ablations.<name>.<workload>` with the same keys; `verdict` with each target
and the numbers that decide it. With --frontier: `frontier`, a list of points with the same keys, their `settings` and `workload`.
"""

import argparse
import json
import signal
import sys
from pathlib import Path
from time import monotonic

from benchmarks.colocation import track_agree, track_attached, track_engine, track_first, track_gpu, track_simulate
from benchmarks.colocation.report import draw, markdown, write_result
from benchmarks.harness import say
from benchmarks.machine import describe

TRACKS = {
    "simulate": track_simulate,
    "engine": track_engine,
    "agree": track_agree,
    "attached": track_attached,
    "first": track_first,
    "gpu": track_gpu,
}
# On two idle cores. Those of a GPU are an option.
MINUTES = {"simulate": 120, "engine": 240, "agree": 15, "attached": 10, "first": 20, "gpu": 9}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    whole = argparse.ArgumentParser(
        prog="python -m benchmarks.colocation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = whole.add_subparsers(dest="track", required=True, metavar="|".join(TRACKS))
    for name, track in TRACKS.items():
        command = commands.add_parser(
            name,
            help=(track.__doc__ or "").splitlines()[0],
            description=track.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_argument(
            "--json", action="store_true", help="print only the JSON line on stdout; without it, a table comes first"
        )
        command.add_argument(
            "--quick", action="store_true", help="short runs with one seed and few arms: shows that it works"
        )
        command.add_argument(
            "--trace", type=Path, help="CSV file of arrivals to use instead of the generator (Azure 2023 format)"
        )
        command.add_argument("--seed", type=int, default=1, help="first seed (1)")
        command.add_argument("--out", type=Path, help="folder to write result.json, table.md and plot.png to")
        track.add_arguments(command)
    return whole


def main() -> None:
    """Run a track, print its result and write it to the folder of --out."""
    options = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that engines and servers are stopped
    say(
        f"colocation {options.track}: {'a few minutes' if options.quick else f'about {MINUTES[options.track]} minutes'}"
    )
    began = monotonic()
    measured = TRACKS[options.track].run(options)
    head = {"benchmark": f"colocation {options.track}", "quick": options.quick, "seed": options.seed}
    result = {**head, **measured, "seconds": round(monotonic() - began), "machine": describe()}
    line = json.dumps(result)
    if options.out:
        write_result(options.out, result)
        draw(options.out, result)
    if not options.json:
        print(markdown(result))
    print(line)


if __name__ == "__main__":
    main()
