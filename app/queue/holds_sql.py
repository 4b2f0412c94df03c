"""What the budgets of a chunk hold for it: `held` per mille of the most that it can cost, rounded up."""


def hold(worst: str, per_mille: str) -> str:
    """The SQL of what is held. Null: nothing."""
    return f"(({worst} * {per_mille} + 999) / 1000)"


HELD_COST = f"coalesce({hold('worst', 'held')}, 0)"
HELD_TOKENS = f"coalesce({hold('worst_tokens', 'held')}, 0)"
