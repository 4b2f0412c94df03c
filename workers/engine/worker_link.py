"""What a scheduler in the engine knows of its worker, by its control page, and of the other ranks of its engine."""

import logging
import os
from hashlib import blake2b
from pathlib import Path
from typing import Any

from .control_page import ENGINE_BYTES, SILENT_SECONDS, Commands, Report, Weights
from .page_folder import VARIABLE, OwnPage, PageFolder

logger = logging.getLogger("vllm.harvest")

ALONE_SECONDS = 30.0  # after so much silence the worker's requests have ended with it, and vLLM schedules alone
FRESH_SECONDS = 1.0  # an older report of another rank says nothing: an idle rank takes no step and reports none
_FRESH_STEPS = 4  # … unless its steps take longer
_LOOK_SECONDS = 1.0  # between two looks for pages of other ranks, and for our own


class WorkerLink:
    """The link of one rank. `lockstep`: the slowest rank decides how long a step of all ranks takes. Raises OSError."""

    def __init__(
        self, folder: Path, rank: int = 0, engine: bytes = bytes(ENGINE_BYTES), *, lockstep: bool = False
    ) -> None:
        self._own = OwnPage(folder, rank, engine)
        self._page = self._own.page
        self._commands: Commands | None = None
        self._state = ""  # that was logged last
        self._lockstep = lockstep
        self._siblings = PageFolder(folder)
        self._looked_at = self._checked_at = float("-inf")
        logger.info("HARVEST_PAGE: rank %d waits for its worker at %s", rank, self._own.path)

    @classmethod
    def of_environment(cls, config: Any) -> "WorkerLink | None":
        """The link of the engine with this vLLM configuration; None if the environment names no folder. Raises OSError."""
        if not (folder := os.environ.get(VARIABLE)):
            return None
        parallel = config.parallel_config
        name = str(config.instance_id).split("_dp")[0]  # with Ray each rank's name ends in its number
        # vLLM tells the ranks of a model without experts that they are alone, because they do not wait for each other.
        lockstep = parallel.data_parallel_size > 1 and bool(config.model_config.is_moe)
        engine = blake2b(name.encode(), digest_size=ENGINE_BYTES).digest()
        return cls(Path(folder), parallel.data_parallel_index, engine, lockstep=lockstep)

    @property
    def prior(self) -> Weights | None:
        """What the last engine of this rank had learned."""
        return self._own.prior

    def commands(self, now: float) -> Commands | None:
        """The worker's last commands. None: vLLM schedules alone, as there never was a worker, or none for a long time."""
        if now - self._checked_at > _LOOK_SECONDS:
            self._checked_at = now
            self._restore()
        self._commands = found = self._page.commands() or self._commands
        if found is None:
            if self._page.worker_too_old:
                self._log(logging.ERROR, "the worker is too old for this plug-in: vLLM schedules alone")
            return None
        if not found.harvest:
            self._log(logging.INFO, "the worker lets vLLM schedule alone")
        elif now - found.heartbeat > ALONE_SECONDS:
            self._log(logging.WARNING, "no worker for long: vLLM schedules alone")
            return None
        elif now - found.heartbeat > SILENT_SECONDS:
            self._log(logging.WARNING, "the worker is silent: no batch request runs")
        else:
            self._log(logging.INFO, "a worker commands the scheduler")
        return found

    def _restore(self) -> None:
        """Create the page again if somebody has removed it or cut it short: its worker finds it no more."""
        lost = self._own
        try:
            if lost.path.exists() and lost.page.whole:
                return
            lost.path.unlink(missing_ok=True)
            self._own = OwnPage(lost.path.parent, self._page.rank, self._page.engine)
        except OSError as error:
            self._log(logging.ERROR, f"the control page was removed and cannot be created again: {error}")
            return
        self._page = self._own.page
        lost.close()

    def _log(self, level: int, state: str) -> None:
        if state != self._state:
            logger.log(level, "HARVEST_WORKER: %s", state)
        self._state = state

    def sync_elsewhere(self, now: float) -> bool:
        """Whether another rank in lockstep with this one has a synchronous request."""
        if not self._lockstep:
            return False
        if now - self._looked_at > _LOOK_SECONDS:
            self._siblings.look()
            self._looked_at = now
        reports = [page.report() for page in self._siblings.pages if page.rank != self._page.rank]
        return any(report is not None and _shows_sync(report, now) for report in reports)

    def publish(self, report: Report, learnt: Weights) -> None:
        """Publish the state of the scheduler."""
        self._page.publish(report, learnt)

    def close(self) -> None:
        """Give the page up, as the end of the process does."""
        self._siblings.close()
        self._own.close()


def _shows_sync(report: Report, now: float) -> bool:
    fresh = now - report.at < max(FRESH_SECONDS, _FRESH_STEPS * report.step_seconds)
    return fresh and bool(report.sync_running or report.sync_waiting)
