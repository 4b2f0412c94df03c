"""How long an engine step may take with batch work in it: the one law that L1 and L2 share. Pure Python: L2 runs it in vLLM.

    no synchronous request   max(idle_step, idle_stretch * shortest, quiet)
    otherwise                max(itl_budget + urgency * (itl_ceiling - itl_budget),
                                 itl_stretch * decode,
                                 (1 + tolerance) * alone)    tolerance = prompt_stretch - 1

`quiet` grows while callers stay away for longer than usual, and is 0 as soon as one comes (`quiet.py`).
A near deadline raises only the ITL budget. It adds nothing to a step that the synchronous requests themselves make longer.
"""

import math
from dataclasses import dataclass
from typing import Protocol, Self

UNLIMITED_TOKENS = 1 << 30
_URGENCY_LEVELS = 4  # the budget rises in this many steps


class BudgetSettings(Protocol):
    """The settings of the step budget: milliseconds, and factors."""

    @property
    def itl_budget_ms(self) -> float: ...
    @property
    def itl_stretch(self) -> float: ...
    @property
    def itl_ceiling_ms(self) -> float: ...
    @property
    def idle_step_ms(self) -> float: ...
    @property
    def idle_stretch(self) -> float: ...
    @property
    def prompt_stretch(self) -> float: ...


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
    def of(cls, settings: BudgetSettings) -> Self:
        """The budget of the settings."""
        return cls(
            itl_budget=settings.itl_budget_ms / 1000,
            itl_stretch=settings.itl_stretch,
            itl_ceiling=settings.itl_ceiling_ms / 1000,
            idle_step=settings.idle_step_ms / 1000,
            idle_stretch=settings.idle_stretch,
            tolerance=settings.prompt_stretch - 1,
        )

    def allowed(
        self, decode: float, alone: float, shortest: float, urgency: float, *, sync: bool, quiet: float = 0.0
    ) -> float:
        """Seconds that the step may take. `sync`: synchronous requests are in the engine or expected.

        The first three arguments are predicted seconds: of the step's synchronous decodes, of all its synchronous work, and
        of a step of one token. `urgency` is 0 when no deadline is near and 1 when one is about to be missed. `quiet`: seconds
        that a step may take because callers have been away for long.
        """
        if not sync:
            return max(self.idle_step, self.idle_stretch * shortest, quiet)
        level = math.ceil(max(0.0, min(1.0, urgency)) * _URGENCY_LEVELS) / _URGENCY_LEVELS
        budget = self.itl_budget + level * max(0.0, self.itl_ceiling - self.itl_budget)
        return max(budget, self.itl_stretch * decode, (1 + self.tolerance) * alone)
