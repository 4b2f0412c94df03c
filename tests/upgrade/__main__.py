"""`python -m tests.upgrade --json`: old and new parts in all sixteen arrangements. Exit code 0 if there is no violation."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from tests.crash.checker import report
from tests.crash.history import MUST_BE_ZERO
from tests.upgrade.rolling import KINDS, Rolling, every_arrangement, roll


def main(arguments: Sequence[str] | None = None) -> int:
    """Run once and print the report to stderr; with --json one object as the last line of stdout."""
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the load")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, help="arrange only these kinds of parts")
    parser.add_argument("--logs", action="store_true", help="keep the logs of a good run, too")
    parser.add_argument("--json", action="store_true", help="print what was counted as one object in the last line")
    options = parser.parse_args(arguments)
    found = asyncio.run(roll(list(every_arrangement(options.only)), options.seed, keep_logs=options.logs))
    print(report(found.history, options.seed), file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps(summary(found)), flush=True)
    return 0 if found.history.sound else 1


def summary(found: Rolling) -> dict[str, Any]:
    """The counts of a run."""
    history = found.history
    return {
        "arrangements": len(set(found.arrangements)),
        "pairs": len(found.pairs),
        "submits": history.notes["submits"],
        "batches": len(history.accepted),
        "items": history.items,
        **{name: history.counts[name] for name in MUST_BE_ZERO},
    }


if __name__ == "__main__":
    sys.exit(main())
