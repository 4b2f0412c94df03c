"""Old and new parts side by side under load: what is lost, doubled or run again (tests/upgrade)."""

import json
import subprocess
import sys
from typing import Any

from app.processes import dies_with_parent
from benchmarks.harness import say

KINDS = ("api", "worker", "steward", "notifier")
LIMIT_SECONDS = 3600
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
    command = [sys.executable, "-m", "tests.upgrade", "--json", "--only", *kinds]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=False, timeout=LIMIT_SECONDS, preexec_fn=dies_with_parent()
    )
    if not done.stdout.strip():
        raise RuntimeError(
            f"`{' '.join(command)}` ended with {done.returncode} and without a result; its errors are above"
        )
    found = json.loads(done.stdout.splitlines()[-1])
    other = {name: n for name, n in found.items() if n and name not in (*_MEANT.values(), *_SEEN)}
    say(f"versions: {found['arrangements']} arrangements, {found['items']} items")
    return {
        **{key: found[name] for key, name in _MEANT.items()},
        "mixed_versions_other": other,
        **{f"mixed_versions_{name}": found[name] for name in _SEEN},
    }
