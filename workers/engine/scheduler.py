"""The scheduler classes: for the engine, where the commands come from the control page, and for the simulator."""

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from .control_page import SILENT_SECONDS, Weights
from .step_model import StepModel
from .step_sharing import HarvestMixin, logger
from .worker_link import WorkerLink


class SyncHarvestScheduler(HarvestMixin, Scheduler):
    """For the simulator, which sets `commands` and `clock`."""


class LinkedMixin(HarvestMixin):
    """The mixin in an engine: the commands come from the page. Without a page vLLM schedules alone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._link: WorkerLink | None = None
        try:
            self._link = WorkerLink.of_environment(self.vllm_config)
            if self._link is not None and self._link.prior is not None:
                self.model = StepModel.of(self._link.prior)
            self._publish()
        except Exception:  # vLLM schedules alone, or the model starts without weights
            logger.exception("HARVEST_PAGE")

    def _commanded(self) -> bool:
        if self._link is not None:
            try:
                self.commands = self._link.commands(self.clock())
            except Exception:
                self.commands = None
                self._trip()
            if self.commands is None:
                self.report.silent, self._frozen = False, {}
        return super()._commanded()

    def _silent(self, now: float) -> bool:
        commands = self.commands
        return self._link is not None and commands is not None and now - commands.heartbeat > SILENT_SECONDS

    def _sync_elsewhere(self, now: float) -> bool:
        return self._link is not None and self._link.sync_elsewhere(now)

    def _publish(self) -> None:
        if self._link is not None:
            self._link.publish(self.report, Weights(*self.model.weights))


class SteppedHarvestScheduler(LinkedMixin, Scheduler):
    """For an engine without asynchronous scheduling."""


class HarvestScheduler(LinkedMixin, AsyncScheduler):
    """For the engine, as `--scheduler-cls`. Without asynchronous scheduling it makes a SteppedHarvestScheduler.

    An AsyncScheduler schedules tokens that are not known yet. An engine without asynchronous scheduling (pipeline parallelism
    on vLLM's first model runner, drafts from n-grams, embeddings) would compute placeholders in their place.
    """

    def __new__(cls, vllm_config: Any, *args: Any, **kwargs: Any) -> Any:
        """The scheduler that fits the engine. Python calls `__init__` only if it is of this class."""
        if vllm_config.scheduler_config.async_scheduling:
            return super().__new__(cls)
        return SteppedHarvestScheduler(vllm_config, *args, **kwargs)
