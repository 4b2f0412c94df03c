"""What the budgets of a chunk hold for it: `held` per mille of the most that it can cost, rounded down."""

HELD_COST = "coalesce(worst * held / 1000, 0)"
HELD_TOKENS = "coalesce(worst_tokens * held / 1000, 0)"
