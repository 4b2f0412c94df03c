"""The L2 arm: our scheduler on the simulated clock, its variant for an ablation, and the worker."""

from collections.abc import Callable
from typing import Any

from app.headroom.gate_rules import HeadroomLimits
from app.headroom.signals import BatchLoad
from app.settings import Settings
from benchmarks.colocation.capped_workers import CappedWorker
from benchmarks.colocation.simulation_view import Conditions, SimulationView
from benchmarks.colocation.skewed_step_model import SkewedStepModel
from workers.engine.control_page import Commands
from workers.engine.scheduler import SyncHarvestScheduler
from workers.gpu.harvest_control import commands_of, gauges_of, residents


class EvictingScheduler(SyncHarvestScheduler):
    """Evicts every request that it would freeze."""

    def _stuck(self, frozen: list[Any], commands: Commands, now: float) -> list[Any]:
        return [request for request in frozen if self._request_blocks_can_be_freed(request)]


def prepare_l2(scheduler: SyncHarvestScheduler, clock: Callable[[], float], conditions: Conditions) -> None:
    """Give the scheduler the simulated clock and the budgets of the settings."""
    scheduler.clock = clock
    scheduler.nap = lambda seconds: None
    scheduler.model = SkewedStepModel(conditions.model_factor)
    scheduler.commands = commands_of(Settings(**dict(conditions.settings)))


class L2Worker(CappedWorker):
    """Keeps as many batch requests in the engine as the shipped worker does with the same report of the scheduler."""

    def __init__(self, run: SimulationView) -> None:
        super().__init__(run, 0)
        settings = Settings(**dict(run.conditions.settings))
        self._limits = HeadroomLimits.of(settings, run.workload.engine.slots)
        self._pause, self._error = settings.control_seconds, commands_of(settings).error
        run.at(0.0, self._tick)

    def _tick(self) -> None:
        scheduler = self.run.engine.scheduler
        assert isinstance(scheduler, SyncHarvestScheduler)
        load = BatchLoad(requests=len(self.run.live))
        report = scheduler.report
        fitting = residents(report, gauges_of(report, None), load, self._limits, self._error).allowance
        self.cap = self._limits.cap if self.run.conditions.crowded else fitting
        self.run.admit()
        self.run.at(self.run.now + self._pause, self._tick)
