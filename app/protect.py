"""What harvest may cost: the step budgets that `SLACKWATER_PROTECT` stands for. docs/headroom.md shows them on the curve."""

from typing import Literal

Protect = Literal["strict", "balanced", "harvest"]
DEFAULT: Protect = "balanced"

BUDGETS: dict[Protect, dict[str, float]] = {
    "strict": {
        "itl_budget_ms": 1,  # so that the stretch decides, on every machine
        "itl_stretch": 1.08,
        "prompt_stretch": 1.0,
        "itl_ceiling_ms": 1,
        "idle_step_ms": 12,
        "idle_stretch": 1.1,
    },
    "balanced": {
        "itl_budget_ms": 22,
        "itl_stretch": 1.1,
        "prompt_stretch": 1.0,
        "itl_ceiling_ms": 50,
        "idle_step_ms": 50,
        "idle_stretch": 1.5,
    },
    "harvest": {
        "itl_budget_ms": 35,
        "itl_stretch": 1.5,
        "prompt_stretch": 1.1,
        "itl_ceiling_ms": 70,
        "idle_step_ms": 100,
        "idle_stretch": 2.0,
    },
}
