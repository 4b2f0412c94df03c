"""Arm `kills`: pipelines and conversations under real kills and other faults (tests/crash): what is lost, doubled or made of
something else.
"""

from typing import Any

from benchmarks.harness import say
from benchmarks.scale.histories import checked

COUNTED = ("kill_lost", "kill_doubled", "kill_wrong_lineage")
_SEEN = ("seeds", "faults", "items", "pipelines", "pipeline_items", "turns")
_LISTS = ("seed_list", "faults_by_kind")


def kills(*, seeds: int = 2, seconds: float = 60) -> dict[str, Any]:
    """Attack a whole installation with random seeds, for so many seconds each. Returns what the checker counted over all of them.
    `kill_other`: its other violations, by name.
    """
    found = checked("tests.crash", "--seeds", str(seeds), "--seconds", f"{seconds:g}")
    other = {name: n for name, n in found.items() if n and name not in (*COUNTED, *_SEEN, *_LISTS)}
    say("kills: " + ", ".join(f"{found[name]} {name}" for name in ("pipelines", "pipeline_items", "turns", "faults")))
    return {
        **{name: found[name] for name in COUNTED},
        "kill_other": other,
        **{f"kill_{name}": found[name] for name in (*_SEEN, "seed_list")},
    }
