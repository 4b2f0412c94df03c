"""What the harvest scheduler decides, step by step, on fixed loads: recorded once and compared in every vLLM version.

python -m tests.harvest.decisions     record the decisions of this vLLM as the ones that are expected
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testing.bare_scheduler import BATCH, SYNC
from tests.harvest.support import Bench
from workers.engine.control_page import Commands
from workers.engine.scheduler import HarvestScheduler, SyncHarvestScheduler

FOLDER = Path(__file__).parent / "traces"
CLASSES = {"one step at a time": SyncHarvestScheduler, "one step in flight": HarvestScheduler}
# Fixed here, so that no other default changes the trace.
_COMMANDS = Commands(
    itl_budget=0.02, itl_stretch=1.1, itl_ceiling=0.05, idle_step=0.05, idle_stretch=1.5, tolerance=0.05
)
_LOADS: dict[str, dict[str, Any]] = {
    "room for all": {"max_seqs": 64},
    "few slots": {"max_seqs": 6},
    "little memory": {"max_seqs": 32, "kv_blocks": 180, "watermark": 0.02},
    "memory runs out": {"max_seqs": 32, "kv_blocks": 70},
    "long prompts": {"max_seqs": 16, "step_tokens": 512, "kv_blocks": 1500},
}
_STEPS = 250


def record(cls: Any, load: str) -> list[str]:
    """One line per step: the scheduled tokens of each request, then how many requests are frozen and were evicted so far."""
    return list(_steps(cls, load))


def _steps(cls: Any, load: str) -> Iterator[str]:
    bench, rng = Bench(cls, _COMMANDS, **_LOADS[load]).learnt(), random.Random(load)
    longest = 1500 if load == "long prompts" else 250
    for step in range(_STEPS):
        if step % 3 == 0 and step < _STEPS // 2:
            bench.add(f"b{step}", rng.randint(10, longest), rng.randint(5, 60), BATCH)
        if rng.random() < 0.15:
            bench.add(f"s{step}", rng.randint(5, longest), rng.randint(2, 20), SYNC)
        given, report = bench.step(), bench.scheduler.report
        tokens = " ".join(f"{rid}:{count}" for rid, count in given.items())
        yield f"{tokens} | {report.batch_frozen} {report.evictions}"


def expected() -> dict[str, dict[str, list[str]]]:
    """The recorded decisions, by load and class."""
    return json.loads((FOLDER / "decisions.json").read_text())  # type: ignore[no-any-return]


def explanations() -> dict[str, dict[str, str]]:
    """By version: which `load, class` decides differently, and the change in vLLM that is the reason."""
    return json.loads((FOLDER / "differences.json").read_text())  # type: ignore[no-any-return]


def loads() -> list[str]:
    """The names of the loads."""
    return list(_LOADS)


if __name__ == "__main__":
    made = {load: {name: record(cls, load) for name, cls in CLASSES.items()} for load in _LOADS}
    (FOLDER / "decisions.json").write_text(json.dumps(made, indent=0) + "\n")
    sys.stdout.write("recorded\n")
