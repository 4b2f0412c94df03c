"""What synchronous callers pay for the batch work beside them, and what the batch gets, for each way of sharing an engine.

    python -m benchmarks.colocation simulate --json [--quick] [--trace FILE] [--seed N] [--out FOLDER]
    python -m benchmarks.colocation simulate --arms l1,static_32 --workloads burst,burst_long --quick

simulate   vLLM's own scheduler under a simulated clock: deterministic, no GPU, no weights
engine     real vLLM and a real model on this machine, the whole system in the loop
gpu        the same where there is a GPU; else the result says that there is none

Progress goes to stderr; the last line of stdout is one JSON object: `arms.<arm>.<workload>` with `ttft_p50_x`, `ttft_p99_x`,
`itl_p50_x`, `itl_p95_x`, `itl_p99_x` (over synchronous callers alone on the same arrivals; `_ms` are absolute), `batch_tok_s`
(each prompt once), `harvest` (share of what priority scheduling alone gives the batch), `wasted_tok_s` (tokens computed
twice); `ablations.<name>.<workload>` with the same; `verdict` with each promise and the numbers that decide it.
"""

import argparse
import json
import signal
import sys
from pathlib import Path
from time import monotonic

from benchmarks.colocation import track_engine, track_gpu, track_simulate
from benchmarks.colocation.report import markdown, plot
from benchmarks.machine import describe

TRACKS = {"simulate": track_simulate, "engine": track_engine, "gpu": track_gpu}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    whole = argparse.ArgumentParser(
        prog="python -m benchmarks.colocation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = whole.add_subparsers(dest="track", required=True, metavar="|".join(TRACKS))
    for name, track in TRACKS.items():
        command = commands.add_parser(name, help=(track.__doc__ or "").splitlines()[0], description=track.__doc__)
        command.add_argument(
            "--json", action="store_true", help="only the JSON line on stdout; else the table comes first"
        )
        command.add_argument("--quick", action="store_true", help="short runs, one seed, no ablations")
        command.add_argument("--trace", type=Path, help="CSV of arrivals instead of the generator (Azure 2023 format)")
        command.add_argument("--seed", type=int, default=1, help="the first seed (1)")
        command.add_argument("--out", type=Path, help="folder for result.json, table.md and plot.png")
        track.add_arguments(command)
    return whole


def main() -> None:
    """Run a track, print and keep its result."""
    options = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # engines and servers are ended on the way out
    began = monotonic()
    measured = TRACKS[options.track].run(options)
    head = {"benchmark": f"colocation {options.track}", "quick": options.quick, "seed": options.seed}
    found = {**head, **measured, "seconds": round(monotonic() - began), "machine": describe()}
    line = json.dumps(found)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "result.json").write_text(line + "\n")
        (options.out / "table.md").write_text(markdown(found))
        try:
            if found["arms"]:
                plot(found["arms"], options.out / "plot.png")
        except ImportError:
            print("no plot: matplotlib is not installed", file=sys.stderr)
    if not options.json:
        print(markdown(found))
    print(line)


if __name__ == "__main__":
    main()
