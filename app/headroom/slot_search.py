"""How many requests an engine runs at once, found out where neither the settings nor the engine say it. Pure.

As TCP looks for the room of a path: the number grows while the engine runs all that it may be given, and falls to what the engine
runs when requests go on waiting in it, some of them ours. Each time that this happens at about the same number, the next attempt
to grow comes twice as late. So ours wait in the engine for two scrapes, and ever more rarely.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

from app.headroom.signals import Scrape

FIRST = 8  # leaves the first caller a free slot in any usual engine
MOST = 256  # what vLLM has by default
_GROWTH = 1.25
_PATIENCE_SECONDS, _MOST_PATIENCE_SECONDS = 2.0, 600.0
_SAME = 1.25  # two findings that differ by a smaller factor are one
_SURE = 2


@dataclass(frozen=True, slots=True)
class SlotSearch:
    """What is known so far. `slots`: as many requests may be in the engine. `found`: how many it ran when others waited; 0: that
    was not seen yet. `times`: how often in a row about so many. `grows_at`: monotonic second before which `slots` does not grow.
    `waited`: what ran in the last scrape, if requests waited in it.
    """

    slots: int = FIRST
    found: int = 0
    times: int = 0
    grows_at: float = -math.inf
    waited: int | None = None

    @property
    def sure(self) -> bool:
        """Whether the engine was seen full often enough to say what it runs."""
        return self.times >= _SURE

    def seen(self, scrape: Scrape, *, reserve: int, kv_ceiling: float) -> Self:
        """After one more scrape. `reserve`: slots that batch work leaves free. `kv_ceiling`: the share of the KV cache beyond
        which requests may wait for memory, not for a slot.
        """
        gauges = scrape.gauges
        if gauges is None or scrape.blind:
            return self
        running, now = int(gauges.running), scrape.sampled_at
        if not gauges.waiting:
            return replace(self._grown(running, now, reserve), waited=None)
        # A request waits for a moment also before it is taken in: then more run in the next scrape.
        still = self.waited is not None and running <= self.waited
        if still and scrape.own and 0 < running < self.slots and gauges.kv_usage < kv_ceiling:
            return self._fallen(running, now, reserve)
        return replace(self, waited=running)

    def _grown(self, running: int, now: float, reserve: int) -> Self:
        if running > self.slots:
            return replace(self, slots=running)  # with its callers' requests
        if running < self.slots - reserve or now < self.grows_at:
            return self
        return replace(self, slots=max(self.slots, min(MOST, math.ceil(self.slots * _GROWTH))))

    def _fallen(self, running: int, now: float, reserve: int) -> Self:
        same = self.found / _SAME <= running <= self.found * _SAME
        times = self.times + 1 if same else 1
        patience = min(_MOST_PATIENCE_SECONDS, _PATIENCE_SECONDS * 2**times)
        slots = max(running, reserve + 1)  # else batch work would never run there
        return replace(self, slots=slots, found=running, times=times, grows_at=now + patience, waited=None)
