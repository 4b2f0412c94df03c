"""How fast the prompts of a session grow. Pure."""

from collections.abc import Sequence

TURNS = 10  # the latest ones, which count
MIN_TURNS = 3


def slope(prompts: Sequence[int]) -> float | None:
    """Tokens by which a prompt is longer than the one before it: the least-squares slope of the last `TURNS` lengths.

    None: fewer than `MIN_TURNS`.
    """
    lengths = prompts[-TURNS:]
    turns = len(lengths)
    if turns < MIN_TURNS:
        return None
    weights = range(1 - turns, turns, 2)  # twice the distance of each turn from the middle one
    return (
        2 * sum(weight * length for weight, length in zip(weights, lengths, strict=True)) / sum(w * w for w in weights)
    )
