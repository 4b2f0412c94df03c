"""The arms of the GPU track, the order of their cycles, and what still fits into the time."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

PLAIN, FCFS, MANAGED = "plain", "fcfs", "managed"
FIRST = ("sync_only", "static_20", "l1", "l2")
REST = ("fifo", "priority", "batch_only", "static_5", "static_10", "static_40")
ARMS = FIRST + REST
OTHER_NAMES = {"alone": "sync_only", "ungoverned": "fifo", "flood": "batch_only"}
Visit = tuple[str, int]  # arm and cycle


def engine_of(arm: str) -> str:
    """The engine of an arm: vLLM's priority scheduling, first come first served, or one that we manage."""
    return {"fifo": FCFS, "l2": MANAGED}.get(arm, PLAIN)


def named(wanted: str) -> list[str]:
    """The arms of a list with commas, in the order of `ARMS`; an empty list means all. Raises ValueError."""
    if not wanted:
        return list(ARMS)
    asked = {OTHER_NAMES.get(name, name).replace("cap_", "static_") for name in wanted.split(",")}
    if unknown := sorted(asked - set(ARMS)):
        raise ValueError(
            f"no arm {', '.join(unknown)}; there are {', '.join((*ARMS, *OTHER_NAMES))}, and cap_N for static_N"
        )
    return [arm for arm in ARMS if arm in asked]


def visits(arms: Collection[str], cycles: int, done: Collection[Visit]) -> list[Visit]:
    """What is left to do, in order: the arms interleaved by cycles.

    Each cycle takes the arms of `FIRST` before the others. Even cycles turn the order of neighbours on one engine round.
    """
    left: list[Visit] = []
    for cycle in range(1, cycles + 1):
        whole = [(arm, cycle) for arm in ARMS if arm in arms and (arm, cycle) not in done]
        for _, stretch in stretches(whole):
            left += stretch if cycle % 2 else stretch[::-1]
    return left


def stretches(listed: Iterable[Visit]) -> Iterator[tuple[str, list[Visit]]]:
    """Neighbours on one engine: (engine, its visits)."""
    for engine, found in groupby(listed, key=lambda visit: engine_of(visit[0])):
        yield engine, list(found)


def counts(arms: Sequence[str], done: Collection[Visit]) -> dict[str, int]:
    """Finished cycles by arm."""
    return {arm: sum(found == arm for found, _ in done) for arm in arms}


@dataclass
class Clock:
    """Decides whether a next step fits into the time that is left. It learns how long engines and installations take to start."""

    ends: float  # monotonic seconds
    cycle: float  # seconds of one cycle with its warm-up
    start: dict[str, float] = field(default_factory=lambda: {PLAIN: 90.0, FCFS: 90.0, MANAGED: 0.0})
    up: dict[str, float] = field(default_factory=lambda: {PLAIN: 15.0, FCFS: 15.0, MANAGED: 105.0})

    def fits(self, now: float, engine: str, *, start: bool = False, up: bool = False) -> bool:
        """Whether a cycle fits, after the start of the engine and of an installation if they are not up."""
        needed = self.cycle + (self.start[engine] if start else 0.0) + (self.up[engine] if up else 0.0)
        return now + needed <= self.ends
