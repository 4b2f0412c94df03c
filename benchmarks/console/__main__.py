"""What traces and the console cost the queue, on this machine.

    python -m benchmarks.console --json [--quick] [--only ARM[,ARM…]] [--database-url postgresql://…]

traces   spans of 50,000 items, and a worker's drain with traces beside one without, in pairs

Progress goes to stderr, after the load average. The last line of stdout is one JSON object.
"""

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from benchmarks.console import traces
from benchmarks.harness import Testbed, open_testbed, say
from benchmarks.machine import describe


@dataclass(frozen=True)
class ConsoleSizes:
    """Sizes of all arms."""

    items: int = 50_000
    pairs: int = 5


QUICK = ConsoleSizes(4000, 1)


def arms(sizes: ConsoleSizes) -> dict[str, Callable[[Testbed], dict[str, Any]]]:
    """All arms by name, in the order in which they run."""
    return {"traces": lambda testbed: traces.drains(testbed, sizes.items, sizes.pairs)}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run all arms, or those that --only names."""
    table = arms(QUICK if options.quick else ConsoleSizes())
    wanted = options.only.split(",") if options.only else list(table)
    if unknown := set(wanted) - set(table):
        raise SystemExit(f"unknown arm: {', '.join(sorted(unknown))}; choose from {', '.join(table)}")
    began, loads = monotonic(), {}
    found: dict[str, Any] = {"benchmark": "console", "quick": options.quick}
    with open_testbed(options.database_url) as testbed:
        for name in wanted:
            loads[name] = round(os.getloadavg()[0], 2)
            say(f"{name} …")
            found |= table[name](testbed)
            testbed.clear()
    return {**found, "load_average_at_start": loads, "seconds": round(monotonic() - began), "machine": describe()}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--only", help="arms, separated by commas")
    parser.add_argument(
        "--json", action="store_true", help="one line of JSON, which is also what is printed without it"
    )
    parser.add_argument("--database-url", default="", help="a PostgreSQL server to use instead of an embedded one")
    options = parser.parse_args()
    found = run(options)
    print(json.dumps(found, indent=None if options.json else 2), flush=True)


if __name__ == "__main__":
    main()
