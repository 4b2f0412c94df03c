"""What spend, budgets and policy cost, and how exactly they hold, on this machine.

    python -m benchmarks.governance --json [--quick] [--only ARM[,ARM…]] [--database-url postgresql://…]

ingest   items per second through the API with labels and three budgets, beside a process without ledger and budgets, in pairs
drain    the same for four workers and the steward, which reserves, books and settles; then what ledger and budgets are off by
sealed   both again with bodies sealed, beside bodies in the clear
reserving chunks per second that the steward's round makes ready
admit    the time that `admit` and three budgets take for one synchronous request, in the process
redact   MB/s of prompts that are searched for sensitive values, what that adds to a synchronous request, and items per
         second through the API of an account whose requests are redacted
tight    how far a batch overspends a budget for half of it
lag      seconds until a request that has ended is in the ledger, synchronous and queued
audit    rows of the audit log per second, written with their cause and sealed
race     64 callers at once against one budget, here and behind LiteLLM's proxy, on the same fake engine

Progress goes to stderr, after the load average. The last line of stdout is one JSON object.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks import command
from benchmarks.governance import (
    admitting,
    audit_seal,
    budget_race,
    ledger_lag,
    queue_cost,
    redacting,
    reserving_rate,
    sealed_cost,
    tight_budget,
)
from benchmarks.harness import Testbed, open_testbed


@dataclass(frozen=True)
class GovernanceSizes:
    """Sizes of all arms."""

    items: int = 50_000
    pairs: int = 7
    reserved_items: int = 190_000  # below the limit of one body
    admissions: int = 20_000
    tight_items: int = 4000
    lags: int = 60
    calls: int = 20
    audit_rows: int = 50_000
    redacted: int = 4000
    peer: bool = True  # whether the other proxy runs, too


QUICK = GovernanceSizes(4000, 1, 20_000, 1000, 400, 6, 10, 5000, 400, peer=False)


def arms(sizes: GovernanceSizes) -> dict[str, Callable[[Testbed], dict[str, Any]]]:
    """All arms by name, in the order in which they run."""
    return {
        "ingest": lambda testbed: queue_cost.ingest(testbed, sizes.items, sizes.pairs),
        "drain": lambda testbed: queue_cost.drain(testbed, sizes.items, sizes.pairs),
        "sealed": lambda testbed: (
            sealed_cost.ingest(testbed, sizes.items, sizes.pairs) | sealed_cost.drain(testbed, sizes.items, sizes.pairs)
        ),
        "reserving": lambda testbed: reserving_rate.reserving(testbed, sizes.reserved_items),
        "admit": lambda testbed: admitting.admit(testbed, sizes.admissions),
        "redact": lambda testbed: (
            redacting.redact(testbed, sizes.redacted)
            | redacting.redact_sync(testbed, sizes.redacted)
            | redacting.ingest_redacted(testbed, sizes.items, sizes.pairs)
        ),
        "tight": lambda testbed: tight_budget.overshoot(testbed, sizes.tight_items),
        "lag": lambda testbed: ledger_lag.lag(testbed, sizes.lags),
        "audit": lambda testbed: audit_seal.seal(testbed, sizes.audit_rows),
        "race": lambda testbed: budget_race.race(testbed, sizes.calls, peer=sizes.peer),
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The wanted arms on one server."""
    table = arms(QUICK if options.quick else GovernanceSizes())
    with open_testbed(options.database_url) as testbed:
        return command.in_turn(table, options.arms, testbed, after=testbed.clear)


if __name__ == "__main__":
    command.main("governance", __doc__, run, minutes=8, arms=arms(QUICK), database=True)
