"""How long an engine step may take with batch work in it: the one law that L1 and L2 share. Pure Python: L2 runs it in vLLM.

    no synchronous request   max(idle_step, idle_stretch * shortest)
    otherwise                max(itl_budget + urgency * (itl_ceiling - itl_budget),
                                 itl_stretch * decode,
                                 (1 + tolerance) * alone)

A near deadline raises only the ITL budget. It adds nothing to a step that the synchronous requests themselves make longer.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:  # vLLM's process imports this module without the dependencies of the settings
    from app.settings import Settings

TOLERANCE = 0.05
UNLIMITED_TOKENS = 1 << 30
_URGENCY_LEVELS = 4  # the budget rises in this many steps


@dataclass(frozen=True, slots=True)
class StepBudget:
    """The limits of a step, in seconds or as factors. The settings of the same names say what each one means.

    `tolerance`: the part by which batch work may lengthen a step that synchronous work alone takes beyond the budget.
    """

    itl_budget: float
    itl_stretch: float
    itl_ceiling: float
    idle_step: float
    idle_stretch: float
    tolerance: float

    @classmethod
    def of(cls, settings: "Settings") -> Self:
        """The budget of the settings."""
        return cls(
            itl_budget=settings.itl_budget_ms / 1000,
            itl_stretch=settings.itl_stretch,
            itl_ceiling=settings.itl_ceiling_ms / 1000,
            idle_step=settings.idle_step_ms / 1000,
            idle_stretch=settings.idle_stretch,
            tolerance=TOLERANCE,
        )

    def allowed(self, decode: float, alone: float, shortest: float, urgency: float, *, sync: bool) -> float:
        """Seconds that the step may take. `sync`: synchronous requests are in the engine or expected.

        The first three arguments are predicted seconds: of the step's synchronous decodes, of all its synchronous work, and
        of a step of one token. `urgency` is 0 when no deadline is near and 1 when one is about to be missed.
        """
        if not sync:
            return max(self.idle_step, self.idle_stretch * shortest)
        level = math.ceil(max(0.0, min(1.0, urgency)) * _URGENCY_LEVELS) / _URGENCY_LEVELS
        budget = self.itl_budget + level * max(0.0, self.itl_ceiling - self.itl_budget)
        return max(budget, self.itl_stretch * decode, (1 + self.tolerance) * alone)
