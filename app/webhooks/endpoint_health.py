"""The circuit breaker of an endpoint, the warnings to its owner, and when it is disabled. Pure.

Five failures in a row open the breaker: nothing is sent for a pause, then one delivery at a time until one is accepted. Each
failure after a pause makes the next pause longer. Attempts that were in flight when the breaker opened do not count.
Deliveries that wait for the breaker use up no attempts. An endpoint that has been failing for `patience` is disabled. Its owner
is warned at 50, 70 and 90 % of that time, and notified at the end.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

FAILURES_IN_A_ROW = 5
PAUSES = (10.0, 30.0, 60.0, 300.0, 900.0)
"""Seconds for which the breaker stays open. Each failure after a pause selects the next one."""
WARN_AT = (0.5, 0.7, 0.9)
"""Shares of `patience` at which the owner is warned."""


@dataclass(frozen=True, slots=True)
class EndpointHealth:
    """The failures in a row and since when, until when the breaker is open, and how many warnings were sent.

    Once the breaker has opened, `failures` counts each further opening as one.
    """

    failures: int = 0
    failing_since: datetime | None = None
    open_until: datetime | None = None
    warned: int = 0


HEALTHY = EndpointHealth()


def after_failure(
    health: EndpointHealth, begun: datetime, now: datetime, patience: timedelta
) -> tuple[EndpointHealth, float | None]:
    """The health after an attempt that started at `begun` has failed, and the share of `patience` that is over.

    The share is None if no warning is due. A share of 1 or more means: disable the endpoint. Both times are the database's.
    """
    since = health.failing_since or now
    share = (now - since) / patience
    steps = sum(share >= step for step in (*WARN_AT, 1.0))
    after = replace(health, failing_since=since, warned=max(steps, health.warned))
    # No attempt starts while the breaker is open, so one that started before its end was in flight when it opened.
    if health.open_until is None or begun >= health.open_until:
        failures = health.failures + 1
        after = replace(after, failures=failures, open_until=_opens(failures, now))
    return after, share if steps > health.warned else None


def _opens(failures: int, now: datetime) -> datetime | None:
    """Until when the breaker is open after this many failures in a row; None: it stays closed."""
    over = failures - FAILURES_IN_A_ROW
    return now + timedelta(seconds=PAUSES[min(over, len(PAUSES) - 1)]) if over >= 0 else None
