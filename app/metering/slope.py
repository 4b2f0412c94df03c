"""How fast the prompts of a session grow. Pure."""

from collections.abc import Sequence
from math import ceil

TURNS = 10  # the latest ones, which count
MIN_TURNS = 3
SOON_TURNS = 10  # a window that is full after so many is full soon


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


def turns_left(tokens: int | None, grows: float | None, window: int | None) -> int | None:
    """Turns until the context window is full. `tokens`: with which the next prompt begins. `grows`: the slope. None: it does not
    grow, or something is not known.
    """
    if not tokens or not window or grows is None or grows <= 0:
        return None
    return max(0, ceil((window - tokens) / grows))


def is_soon(left: int | None) -> bool:
    """Whether the window is full soon, with so many turns left."""
    return left is not None and left <= SOON_TURNS
