"""The compared policies: the scheduler of the engine, and the rule by which a worker admits batch requests."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from vllm.v1.core.sched.scheduler import Scheduler

from benchmarks.colocation.capped_workers import FLOOD, CappedWorker, GaugeWorker
from benchmarks.colocation.engine_profiles import EngineProfile
from benchmarks.colocation.l1_worker import L1Worker
from benchmarks.colocation.l2_worker import EvictingScheduler, L2Worker, prepare_l2
from benchmarks.colocation.simulation_view import Conditions, SimulationView
from testing.bare_scheduler import build
from workers.engine.scheduler import SyncHarvestScheduler

STATIC_CAPS = (16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Arm:
    """One policy. `harvest`: the engine runs our scheduler. `synchronous`: there are synchronous requests."""

    name: str
    worker: Callable[[SimulationView], CappedWorker]
    policy: Literal["fcfs", "priority"] = "priority"
    harvest: bool = False
    synchronous: bool = True

    def scheduler(self, clock: Callable[[], float], conditions: Conditions, engine: EngineProfile) -> Scheduler:
        """The scheduler of a new engine."""
        cls: type[Scheduler] = Scheduler
        if self.harvest:
            cls = SyncHarvestScheduler if conditions.freeze else EvictingScheduler
        built = build(
            cls,
            policy=self.policy,
            kv_blocks=engine.kv_blocks,
            max_seqs=engine.slots,
            step_tokens=engine.step_tokens,
            prefix_cache=True,
        )
        if isinstance(built, SyncHarvestScheduler):
            prepare_l2(built, clock, conditions)
        return built


def _fixed(cap: int) -> Callable[[SimulationView], CappedWorker]:
    return lambda run: CappedWorker(run, cap)


def arms() -> dict[str, Arm]:
    """All arms by name, in the order of the tables."""
    listed = (
        Arm("sync_only", _fixed(0)),
        Arm("batch_only", _fixed(FLOOD), synchronous=False),
        Arm("fifo", _fixed(FLOOD), policy="fcfs"),
        Arm("priority", _fixed(FLOOD)),
        *(Arm(f"static_{cap}", _fixed(cap)) for cap in STATIC_CAPS),
        Arm("gauge", GaugeWorker),
        Arm("l1", L1Worker),
        Arm("l2", L2Worker, harvest=True),
    )
    return {arm.name: arm for arm in listed}
