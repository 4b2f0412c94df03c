"""How many engines of a model the queued work needs, so that each deadline is kept. Pure.

    wanted = max over deadlines d of ceil(tokens due by d / (tokens/s of one engine * (d - now - start)))

Only work that may run counts: what waits for money, or whose batch is paused, asks for no engine.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Work that is late, or due before an engine could start, is planned to end within this time. An autoscaler looks every half a
# minute, and an engine takes minutes to start: for a shorter time it would ask for engines that come when the work is done.
LATE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Due:
    """Estimated tokens with one deadline, which is in `seconds`; negative: it has passed."""

    seconds: float
    tokens: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """`engines`: how many are needed. `seconds`: the deadline that needs the most, from now; None: there is no work."""

    engines: int
    seconds: float | None


def wanted(due: Sequence[Due], tokens_per_second: float | None, start_seconds: float) -> Wanted:
    """The engines for work in any order. `tokens_per_second`: of one engine; None: not measured yet.

    Without a measurement one engine is enough to make it. `start_seconds`: from the order for an engine to its first answer.
    """
    most, decisive, tokens = 0, None, 0.0
    for each in sorted(due, key=lambda one: one.seconds):
        if each.tokens <= 0:
            continue
        tokens += each.tokens
        engines = 1 if not tokens_per_second else _engines(tokens, tokens_per_second, each.seconds - start_seconds)
        if engines > most:
            most, decisive = engines, each.seconds
    return Wanted(most, decisive)


def _engines(tokens: float, tokens_per_second: float, seconds: float) -> int:
    return max(1, math.ceil(tokens / (tokens_per_second * max(seconds, LATE_SECONDS))))
