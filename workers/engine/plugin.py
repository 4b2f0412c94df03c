"""vLLM's entry point: switches the scheduler on in an engine that Slackwater does not start.

vLLM calls `register` in each of its processes. With SLACKWATER_HARVEST=on the configuration of an engine names our scheduler, as
`--scheduler-cls` does, and the scheduling policy is priority, as with `--scheduling-policy priority`. No file of vLLM changes.
"""

import functools
import importlib
import logging
import os
from typing import Any

VARIABLE = "SLACKWATER_HARVEST"
SCHEDULER = f"{__package__}.scheduler.HarvestScheduler"
PRIORITY = "priority"
_ON = frozenset({"on", "1", "true", "yes"})

logger = logging.getLogger("vllm.harvest")


def register() -> None:
    """Switch the scheduler on for the engines of this process, if the environment asks for it."""
    if os.environ.get(VARIABLE, "").strip().lower() not in _ON:
        return
    from vllm.engine.arg_utils import EngineArgs

    original = EngineArgs.create_engine_config
    if getattr(original, "switches_harvest_on", False):
        return

    @functools.wraps(original)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked = self.scheduling_policy
        if (problem := _problem()) is not None:
            logger.warning("HARVEST_UNSUPPORTED: vLLM schedules alone: %s", problem)
            return original(self, *args, **kwargs)
        if self.scheduler_cls is None:
            self.scheduling_policy = PRIORITY
        return _switched_on(original(self, *args, **kwargs), asked)

    create_engine_config.switches_harvest_on = True  # type: ignore[attr-defined]
    EngineArgs.create_engine_config = create_engine_config  # type: ignore[method-assign]


def _problem() -> str | None:
    """Why this vLLM cannot even load the scheduler. In a vLLM that is not supported it might otherwise end the engine's start."""
    try:
        importlib.import_module(SCHEDULER.rpartition(".")[0])
    except Exception as error:
        return repr(error)
    return None


def _switched_on(config: Any, asked: str) -> Any:
    """The configuration with our scheduler, unless it has one of its own. `asked`: the scheduling policy of the arguments."""
    scheduler = config.scheduler_config
    if scheduler.scheduler_cls is None:
        scheduler.scheduler_cls = SCHEDULER
        change = "" if asked == PRIORITY else f"; scheduling policy {PRIORITY} instead of {asked}"
        logger.info("HARVEST_ON: scheduler %s%s", SCHEDULER, change)
    elif scheduler.scheduler_cls != SCHEDULER:
        scheduler.policy = asked
        logger.warning("HARVEST_OFF: this engine has a scheduler of its own, %s", scheduler.scheduler_cls)
    return config
