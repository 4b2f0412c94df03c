"""`python -m tests.crash --seed 7 --seconds 600`: exit code 0 if nothing is wrong."""

import argparse
import asyncio
import random
import sys

from tests.crash.checker import check, report


def main() -> int:
    """Run once and print the report."""
    parser = argparse.ArgumentParser(description="Attack a whole Slackwater for a while and check its history.")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="default: a random one")
    parser.add_argument("--seconds", type=float, default=60, help="how long it is under attack")
    parser.add_argument(
        "--only", action="append", default=[], help="a fault to strike with instead of all (repeatable)"
    )
    parser.add_argument("--chronicle", action="store_true", help="print when which fault struck")
    parser.add_argument("--logs", action="store_true", help="keep the logs of a good run, too")
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.seconds:g} s", flush=True)
    history = asyncio.run(check(options.seed, options.seconds, only=options.only, keep_logs=options.logs))
    if options.chronicle:
        print("\n".join(f"{at:8.2f} {text}" for at, text in history.log))
    print(report(history, options.seed))
    return 0 if history.sound else 1


if __name__ == "__main__":
    sys.exit(main())
