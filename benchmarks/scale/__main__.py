"""Whether the installation grows, and fails over without loss, on this machine.

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

Progress goes to stderr, after the load average. The last line of stdout is one JSON object.
"""

import argparse
from collections.abc import Callable
from typing import Any

from benchmarks import command
from benchmarks.scale import costs, failover, first_claim, handback, idle, idle_fleet, pooled, ramp, steward_round
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
        "first_claim": lambda: first_claim.first_claim(2 if quick else 50, engines, 20 if quick else 150),
        "ramp": lambda: ramp.ramp(engines),
        "fair_order": lambda: fair_order(
            **{"chunks": 20_000, "claims": 50, "rounds": 1, "pinned": 50} if quick else {}
        ),
        "hot_account": lambda: hot_account(**{"chunks": 20_000, "seconds": 1, "rounds": 1} if quick else {}),
        "day_tables": lambda: day_tables(**{"chunks": 200, "times": 20, "rounds": 1} if quick else {}),
        "pooled": lambda: pooled.claims(rounds=2 if quick else 20),
        "steward": lambda: steward_round.steward_round(200 if quick else 10_000, 3 if quick else 20),
        "handback": lambda: handback.handback(rounds=1 if quick else 3),
        "failover": lambda: failover.failover(drills=("crash",) if quick else failover.DRILLS),
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The wanted arms."""
    return command.in_turn(arms(quick=options.quick), options.arms)


if __name__ == "__main__":
    command.main("scale", __doc__, run, minutes=20, arms=arms(quick=True))
