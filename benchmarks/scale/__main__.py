"""Whether the installation grows, is upgraded and fails over without loss, on this machine.

    python -m benchmarks.scale --json [--quick] [--only ARM[,ARM…]]

pooled    claims through a PgBouncer in transaction mode, against claims that go directly to the server
versions  old and new API, workers, stewards and notifiers side by side under load, in each arrangement; with --quick API and
          workers only

Progress goes to stderr, after the load average. The last line of stdout is one JSON object.
"""

import argparse
import json
import os
from collections.abc import Callable
from time import monotonic
from typing import Any

from benchmarks.harness import say
from benchmarks.machine import describe
from benchmarks.scale import pooled, versions


def arms(*, quick: bool) -> dict[str, Callable[[], dict[str, Any]]]:
    """All arms by name, in the order in which they run."""
    return {
        "pooled": lambda: pooled.claims(rounds=2 if quick else 20),
        "versions": lambda: versions.mixed_versions(kinds=("api", "worker") if quick else versions.KINDS),
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run all arms, or those that --only names."""
    table = arms(quick=options.quick)
    wanted = options.only.split(",") if options.only else list(table)
    if unknown := set(wanted) - set(table):
        raise SystemExit(f"unknown arm: {', '.join(sorted(unknown))}; choose from {', '.join(table)}")
    began, loads = monotonic(), {}
    found: dict[str, Any] = {"benchmark": "scale", "quick": options.quick}
    for name in wanted:
        loads[name] = round(os.getloadavg()[0], 2)
        say(f"{name} …")
        found |= table[name]()
    return {**found, "load_average_at_start": loads, "seconds": round(monotonic() - began), "machine": describe()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--json", action="store_true", help="accepted in all benchmarks; stdout is always one JSON line"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes; checks that the benchmark works, the figures mean nothing"
    )
    parser.add_argument("--only", default="", help="run only these arms, separated by commas")
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
