"""How many requests an engine runs at once, found out where the engine does not say it. Pure.

As TCP looks for the room of a path: the number grows while the engine runs all that it may be given, and falls to what the engine
runs when requests go on waiting in it, some of them ours. Each time that this happens at about the same number, the next attempt
to grow comes twice as late. So ours wait in the engine for a few scrapes, and ever more rarely.

A number from the settings is believed until the engine was twice seen to run fewer.
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
_LOOKS = 3  # at different steps, in which requests wait and no more run: an engine takes some of them in with each step


@dataclass(frozen=True, slots=True)
class SlotSearch:
    """What is known so far. `slots`: as many requests may be in the engine. `given`: as many as the settings say; 0: nothing.
    `found`: how many it ran when others waited; 0: that was not seen yet. `times`: how often in a row about so many. `grows_at`:
    monotonic second before which `slots` does not grow. `most`: the most that ran while requests waited, in scrapes in a row;
    `looks`: how many of these have shown no more, each after a further step; `step`: the engine's counters at the last one.
    """

    slots: int = FIRST
    given: int = 0
    found: int = 0
    times: int = 0
    grows_at: float = -math.inf
    most: int = 0
    looks: int = 0
    step: tuple[int, ...] = ()

    @classmethod
    def of(cls, given: int) -> Self:
        """The search where the settings say a number."""
        return cls(slots=given, given=given)

    @property
    def contradicts(self) -> bool:
        """Whether the engine runs fewer than the settings say."""
        return self.sure and self.found * _SAME < self.given

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
        if self.found and running > self.found * _SAME:  # it runs more than was found
            return replace(self, found=0, times=0, grows_at=-math.inf).seen(
                scrape, reserve=reserve, kv_ceiling=kv_ceiling
            )
        if not gauges.waiting:
            return replace(self._grown(running, now, reserve), most=0, looks=0)
        step = (gauges.steps, gauges.generation_tokens, gauges.prompt_tokens)
        if running <= self.most and step == self.step and any(step):
            return self  # of a step that takes longer than a scrape
        looks = self.looks + 1 if running <= self.most else 0
        seen = replace(self, most=max(running, self.most), looks=looks, step=step)
        if looks < _LOOKS or not scrape.own or not 0 < seen.most < self.slots or gauges.kv_usage >= kv_ceiling:
            return seen
        return seen._fallen(now, reserve)

    def _grown(self, running: int, now: float, reserve: int) -> Self:
        if running > self.slots:
            return replace(self, slots=running)  # with its callers' requests
        if running < self.slots - reserve or now < self.grows_at:
            return self
        return replace(self, slots=max(self.slots, min(self.given or MOST, math.ceil(self.slots * _GROWTH))))

    def _fallen(self, now: float, reserve: int) -> Self:
        running = self.most
        same = self.found / _SAME <= running <= self.found * _SAME
        times = self.times + 1 if same else 1
        patience = min(_MOST_PATIENCE_SECONDS, _PATIENCE_SECONDS * 2**times)
        found = replace(self, found=running, times=times, grows_at=now + patience, most=0, looks=0)
        if self.given and not found.sure:
            return found
        return replace(found, slots=max(running, reserve + 1))  # else batch work would never run there
