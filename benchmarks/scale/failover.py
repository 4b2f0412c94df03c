"""The loss of the database's primary, and of connections between hosts, under load (tests/failover)."""

from typing import Any

from benchmarks.harness import say
from benchmarks.scale.histories import checked

DRILLS = ("crash", "partition")  # the second one needs root, for network namespaces
_MEANT = {
    "failover_lost": "lost",
    "failover_duplicates": "duplicated",
    "failover_rerun": "rerun_after_flush",
    "failover_recovery_s": "recovery_s",
}
_SEEN = ("drills", "batches", "items")


def failover(*, drills: tuple[str, ...] = DRILLS) -> dict[str, Any]:
    """Run these drills. Returns what the history checker counted. `failover_recovery_s`: the longest time from a promote until a
    batch was accepted and a result stored. `failover_other`: its other violations, by name.
    """
    found = checked("tests.failover", "--only", *drills)
    other = {name: n for name, n in found.items() if n and name not in (*_MEANT.values(), *_SEEN)}
    say(f"failover: {found['items']} items, works again after {found['recovery_s']} s")
    return {
        **{key: found[name] for key, name in _MEANT.items()},
        "failover_other": other,
        **{f"failover_{name}": found[name] for name in _SEEN},
    }
