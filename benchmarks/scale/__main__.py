"""Whether the installation grows, is upgraded and fails over without loss, on this machine.

    python -m benchmarks.scale --json [--quick] [--only ARM[,ARM…]]

costs        what the server does for a chunk, an item and a heartbeat: the constants of `slackwater capacity`
idle         what `slackwater up`, attached to an engine and without work, takes: processor and memory, for each part
idle_fleet   what 1,000 engines without work cost the database
first_claim  how long a submit to an idle fleet waits for a worker, with 1 pool and with 50
ramp         how fast 1,000 idle engines are at work after one submit
fair_order   a claim with ten and with ten thousand accounts, and under an old snapshot
hot_account  claims and finishes of one account and of a hundred, on sixteen connections
day_tables   time, locks and memory of a chunk with 3 days of tables and with 365
pooled       claims through a PgBouncer in transaction mode, against claims that go directly to the server
steward      how long a round takes with 10,000 open batches
handback     how fast a worker hands back all its work: second signal, notice file, `engine drain --now`
failover     the primary is killed under load, hosts lose each other; with --quick only the first, which needs no root
versions     old and new API, workers, stewards and notifiers side by side under load, in each arrangement; with --quick API and
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
from benchmarks.scale import (
    costs,
    failover,
    first_claim,
    handback,
    idle,
    idle_fleet,
    pooled,
    ramp,
    steward_round,
    versions,
)
from benchmarks.scale.day_tables import day_tables
from benchmarks.scale.fair_order import fair_order
from benchmarks.scale.hot_account import hot_account


def arms(*, quick: bool) -> dict[str, Callable[[], dict[str, Any]]]:
    """All arms by name, in the order in which they run."""
    engines = 64 if quick else 1000
    return {
        "costs": lambda: costs.costs(items=2_000, heartbeats=200) if quick else costs.costs(),
        "idle": lambda: idle.idle(*((5, 10) if quick else (30, 60))),
        "idle_fleet": lambda: idle_fleet.idle_fleet(engines, 5 if quick else 30),
        "first_claim": lambda: first_claim.first_claim(2 if quick else 50, engines, 20 if quick else 300),
        "ramp": lambda: ramp.ramp(engines),
        "fair_order": lambda: fair_order(
            **{"chunks": 20_000, "claims": 50, "rounds": 1, "pinned": 50} if quick else {}
        ),
        "hot_account": lambda: hot_account(**{"chunks": 20_000, "seconds": 1, "rounds": 1} if quick else {}),
        "day_tables": lambda: day_tables(**{"chunks": 200, "times": 20, "rounds": 1} if quick else {}),
        "pooled": lambda: pooled.claims(rounds=2 if quick else 20),
        "steward": lambda: steward_round.steward_round(200 if quick else 10_000, 3 if quick else 20),
        "handback": lambda: handback.handback(rounds=1 if quick else 5),
        "failover": lambda: failover.failover(drills=("crash",) if quick else failover.DRILLS),
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
