"""`python -m tests.failover --json`: the primary is lost under load, and hosts lose each other. Exit code 0 without a violation.

Hosts are network namespaces, which takes root. Everything then runs in a namespace of its own, which nothing leaves.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tests.crash.checker import report
from tests.crash.history import MUST_BE_ZERO
from tests.failover.drills import DRILLS, NETWORKED, Outcome, run

APART = "SLACKWATER_TEST_NETWORK"  # set: this process has a network namespace of its own


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the drills and print the reports to stderr; with --json one object as the last line of stdout."""
    parser = argparse.ArgumentParser(prog="python -m tests.failover", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the load")
    parser.add_argument("--only", nargs="+", choices=DRILLS, default=list(DRILLS), help="run only these drills")
    parser.add_argument("--logs", action="store_true", help="keep the logs of a good run, too")
    parser.add_argument("--json", action="store_true", help="print what was counted as one object in the last line")
    options = parser.parse_args(arguments)
    if APART not in os.environ and set(options.only) & set(NETWORKED):
        command = ["unshare", "--net", sys.executable, "-m", "tests.failover", *(arguments or sys.argv[1:])]
        os.execvpe(command[0], command, {**os.environ, APART: "1"})
    if APART in os.environ:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    outcomes = []
    for name in options.only:
        outcomes.append(asyncio.run(run(name, options.seed, keep_logs=options.logs)))
        print(f"{name}: {report(outcomes[-1].history, options.seed)}", file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps(summary(options.only, outcomes)), flush=True)
    return 0 if all(outcome.history.sound for outcome in outcomes) else 1


def summary(names: Sequence[str], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The counts over all drills, and the longest recovery in seconds."""
    histories = [outcome.history for outcome in outcomes]
    recovery = [seconds for outcome in outcomes for seconds in outcome.recovery]
    return {
        "drills": list(names),
        "batches": sum(len(history.accepted) for history in histories),
        "items": sum(history.items for history in histories),
        "recovery_s": round(max(recovery), 2) if recovery else None,
        **{name: sum(history.counts[name] for history in histories) for name in MUST_BE_ZERO},
    }


if __name__ == "__main__":
    sys.exit(main())
