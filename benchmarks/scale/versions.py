"""Old and new parts side by side under load: what is lost, doubled or run again (tests/upgrade)."""

from typing import Any

from benchmarks.harness import say
from benchmarks.scale.histories import checked

KINDS = ("api", "worker", "steward", "notifier")
_MEANT = {
    "mixed_versions_lost": "lost",
    "mixed_versions_duplicates": "duplicated",
    "mixed_versions_rerun": "rerun_after_flush",
    "mixed_versions_failed_submits": "failed_submits",
}
_SEEN = ("arrangements", "pairs", "submits", "batches", "items")


def mixed_versions(*, kinds: tuple[str, ...] = KINDS) -> dict[str, Any]:
    """Run every arrangement of old and new parts of these kinds, sixteen of all four. Returns what the history checker counted.
    `mixed_versions_other`: its other violations, by name.
    """
    found = checked("tests.upgrade", "--only", *kinds)
    other = {name: n for name, n in found.items() if n and name not in (*_MEANT.values(), *_SEEN)}
    say(f"versions: {found['arrangements']} arrangements, {found['items']} items")
    return {
        **{key: found[name] for key, name in _MEANT.items()},
        "mixed_versions_other": other,
        **{f"mixed_versions_{name}": found[name] for name in _SEEN},
    }
