"""When an endpoint is left alone, warned of, given up. Pure.

Some failures in a row open its breaker: nothing is sent to it for a pause, then one delivery at a time until one is accepted.
Each that is not makes the next pause longer; those that were on their way when the breaker opened say nothing new.
Deliveries wait for that without using up their attempts. An endpoint at which everything has failed for `patience` is
disabled; its owner is told at half of that, at seven and at nine tenths, and at the end.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

FAILURES_IN_A_ROW = 5
PAUSES = (10.0, 30.0, 60.0, 300.0, 900.0)
"""Seconds for which the breaker stays open, for each failure after such a pause the next one."""
LADDER = (0.5, 0.7, 0.9)


@dataclass(frozen=True, slots=True)
class EndpointHealth:
    """How an endpoint does: failures in a row, since when, until when its breaker is open, how much its owner was told.

    After an opening, `failures` counts one for each further opening.
    """

    failures: int = 0
    failing_since: datetime | None = None
    open_until: datetime | None = None
    warned: int = 0


WELL = EndpointHealth()


def after_failure(
    health: EndpointHealth, begun: datetime, now: datetime, patience: timedelta
) -> tuple[EndpointHealth, float | None]:
    """The health after the failure of an attempt that was begun then; and which share of its patience is over, if its owner is
    to be told now. Both times are the database's.

    A share of 1 or more: it is to be disabled.
    """
    since = health.failing_since or now
    share = (now - since) / patience
    steps = sum(share >= step for step in (*LADDER, 1.0))
    found = replace(health, failing_since=since, warned=max(steps, health.warned))
    # None is begun while the breaker is open, so what was begun before its end was on its way when it opened.
    if health.open_until is None or begun >= health.open_until:
        failures = health.failures + 1
        found = replace(found, failures=failures, open_until=_opens(failures, now))
    return found, share if steps > health.warned else None


def _opens(failures: int, now: datetime) -> datetime | None:
    """Until when so many failures in a row open the breaker; None: not at all."""
    over = failures - FAILURES_IN_A_ROW
    return now + timedelta(seconds=PAUSES[min(over, len(PAUSES) - 1)]) if over >= 0 else None
