"""When an endpoint is left alone, warned of, given up. Pure.

Some failures in a row open its breaker: nothing is sent to it for a pause, then one delivery at a time until one is accepted.
Deliveries wait for that without using up their attempts. An endpoint at which everything has failed for `patience` is
disabled; its owner is told at half of that, at seven and at nine tenths, and at the end.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

FAILURES_IN_A_ROW = 5
PAUSES = (10.0, 30.0, 60.0, 300.0, 900.0)
"""Seconds for which the breaker stays open, for each further failure the next one."""
LADDER = (0.5, 0.7, 0.9)


@dataclass(frozen=True, slots=True)
class Health:
    """How an endpoint does: failures in a row, since when, until when its breaker is open, how much its owner was told."""

    failures: int = 0
    failing_since: datetime | None = None
    open_until: datetime | None = None
    warned: int = 0


WELL = Health()


def after_failure(health: Health, now: datetime, patience: timedelta) -> tuple[Health, float | None]:
    """The health after one more failure; and which share of its patience is over, if its owner is to be told now.

    A share of 1 or more: it is to be disabled.
    """
    failures, since = health.failures + 1, health.failing_since or now
    over = failures - FAILURES_IN_A_ROW
    open_until = now + timedelta(seconds=PAUSES[min(over, len(PAUSES) - 1)]) if over >= 0 else None
    share = (now - since) / patience
    steps = sum(share >= step for step in (*LADDER, 1.0))
    found = replace(
        health, failures=failures, failing_since=since, open_until=open_until, warned=max(steps, health.warned)
    )
    return found, share if steps > health.warned else None
