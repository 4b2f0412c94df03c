"""How many requests in an engine's gauges are ours and have left already. Pure.

An engine publishes its gauges after a step, so they still have what has ended or was aborted since then; without a step they stay
as they are, also for ever. Ours that have left must not be taken for requests of others: each would close the gate for a while,
and the yields that follow would make the next ones. But a request of somebody else must never hide behind them for long:

    what is in the gauges beyond ours is others' only if it was there in each of the last LOOKS scrapes,

as long as some of ours may be among it. That others have come is so seen LOOKS scrapes later at most, and at once where they are
announced. Two changes of the counters are two steps, after which nothing is left of what had left before: the first of them may
have been under way.
"""

import math
from collections import deque
from dataclasses import dataclass, field

LOOKS = 3
_STEPS = 2


@dataclass(slots=True)
class Leaving:
    """What the last scrapes of one engine have shown."""

    _beyond: deque[int] = field(default_factory=lambda: deque(maxlen=LOOKS))
    # `left` at each of the last changes of the counters
    _changes: deque[int] = field(default_factory=lambda: deque([0], maxlen=_STEPS + 1))
    _counters: object = None
    _changed_at: float = -math.inf

    def among(self, beyond: int, left: int, counters: object, now: float, *, busy_seconds: float) -> int:
        """How many of the `beyond` requests that are not among our present ones are ours that have left.

        `left`: how many of ours had left when the scrape began, a count that only grows. `counters`: what the engine counts; each
        step changes them. `busy_seconds`: an engine with a request makes a step in this time.
        """
        if counters != self._counters:
            self._counters, self._changed_at = counters, now
            self._changes.append(left)
        leaving = left - self._changes[0]
        self._beyond.append(beyond)
        lasting = min(self._beyond) if now - self._changed_at <= busy_seconds else 0
        return min(leaving, beyond - lasting)
