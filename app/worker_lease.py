"""When a worker's lease holds and when it has lapsed: the one rule, in SQL and in Python. Pure.

`worker.lease_until` is compared with the database's clock. A heartbeat moves it ahead. Once a lease has lapsed, no heartbeat
renews it, its engine counts as absent, and the steward takes its chunks back (`app.queue.reaping`).
"""

# Conditions on a row of `worker`. With an alias of the table: f"w.{WORKER_LEASE_HOLDS}".
WORKER_LEASE_HOLDS = "lease_until >= now()"
WORKER_LEASE_LAPSED = "lease_until < now()"


def worker_overdue(worker: str = "") -> str:
    """A condition on a row of `worker` (a prefix like `w.`): half of its lease is over without a heartbeat, of which several were
    due. It may be gone, although its lease still holds.
    """
    return f"(now() - {worker}renewed_at > ({worker}lease_until - {worker}renewed_at) / 2)"


def has_lapsed(lease_until: float, now: float) -> bool:
    """Whether a lease has lapsed. Both times are in seconds of the database's clock."""
    return lease_until < now
