"""`python -m tests.crash --seed 7 --seconds 600`: exit code 0 if there is no violation. Progress goes to stderr."""

import argparse
import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence

from tests.crash.checker import check, report
from tests.crash.history import MUST_BE_ZERO, History
from tests.crash.system import LEASE_SECONDS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run once per seed and print the reports; with --json one object as the last line of stdout."""
    options = _parser().parse_args(arguments)
    seeds = options.seed or [random.randrange(10**6) for _ in range(options.seeds)]
    histories = [_run(seed, options) for seed in seeds]
    if options.json:
        print(json.dumps(summary(seeds, histories)), flush=True)
    return 0 if all(history.sound for history in histories) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash", description="Attack a whole Slackwater for a while and check its history."
    )
    parser.add_argument("--seed", type=int, action="append", help="default: a random one (repeatable: a run for each)")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="without --seed: runs with N random seeds")
    parser.add_argument("--seconds", type=float, default=60, help="how long each is under attack")
    parser.add_argument("--lease", type=float, default=LEASE_SECONDS, help=f"seconds (default: {LEASE_SECONDS:g})")
    parser.add_argument(
        "--only", action="append", default=[], help="a fault to strike with instead of all (repeatable)"
    )
    parser.add_argument("--chronicle", action="store_true", help="print when which fault struck")
    parser.add_argument("--logs", action="store_true", help="keep the logs of a good run, too")
    parser.add_argument("--json", action="store_true", help="print what was counted as one object in the last line")
    return parser


def _run(seed: int, options: argparse.Namespace) -> History:
    print(f"seed {seed}, {options.seconds:g} s", file=sys.stderr, flush=True)
    history = asyncio.run(check(seed, options.seconds, lease=options.lease, only=options.only, keep_logs=options.logs))
    told = sys.stderr if options.json else sys.stdout
    if options.chronicle:
        print("\n".join(f"{at:8.2f} {text}" for at, text in history.log), file=told)
    print(report(history, seed), file=told, flush=True)
    return history


def summary(seeds: Sequence[int], histories: Sequence[History]) -> dict[str, object]:
    """The counts over all runs: numbers, then the seeds, then the faults by kind."""
    kinds = sum((history.faults for history in histories), Counter[str]())
    return {
        "seeds": len(seeds),
        "faults": kinds.total(),
        "items": sum(history.items for history in histories),
        "pipelines": sum(history.notes["pipelines"] for history in histories),
        "pipeline_items": sum(history.notes["items of pipelines"] for history in histories),
        "turns": sum(history.notes["turns of conversations"] for history in histories),
        **{name: sum(history.counts[name] for history in histories) for name in MUST_BE_ZERO},
        "seed_list": list(seeds),
        "faults_by_kind": dict(kinds),
    }


if __name__ == "__main__":
    sys.exit(main())
