"""Which items, chunks and requests have a span. Pure.

    sampled   a share of the items, by a hash of batch and position: the same items at every worker and in every run
    failed    the item's result is an error
    retried   it was tried again, or goes back to the queue to be
    slow      it took `SLOW_FACTOR` times as long as half of the recent items, and at least `SLOW_SECONDS`
    bare      a chunk without any of these

A chunk has a span if one of its items has one. So the sampled items make at most two spans for each of them. Everything else
is paid from the credit of its batch, which grows with the items that this worker has claimed. Without credit a failed item is
untold: a later span of the batch lists it. So the number of spans is bounded whatever fails, and each failed item is found.
"""

from bisect import insort
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Self

FIRST_CREDIT = 50.0  # spans beyond the sampled ones, of one batch at one worker
CREDIT_AN_ITEM = 0.001
RESERVED = 20.0  # only failed items may use the last part
MOST_UNTOLD = 256  # failed items in one span's list
SLOW_FACTOR = 4.0
SLOW_SECONDS = 1.0
_KNOWN = 256  # recent items whose times are compared
_FEW = 16  # fewer say nothing


class Story(StrEnum):
    """Why an item, or a chunk, has a span."""

    SAMPLED = "sampled"
    FAILED = "failed"
    RETRIED = "retried"
    SLOW = "slow"
    BARE = "bare"


def chosen(name: str, share: float) -> bool:
    """Whether the thing of this name is among a share of all, by its hash."""
    digest = blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * (1 << 64)


def chosen_trace(trace_id: str, share: float) -> bool:
    """Whether a trace is among a share of all, by its random part, as other samplers decide."""
    return int(trace_id[-14:], 16) < share * (1 << 56)


def story(*, ok: bool, attempt: int, slow: bool, sampled: bool) -> Story | None:
    """Why an item with this result has a span, if its batch has credit; None: it has none. `attempt` counts from 1."""
    if sampled:
        return Story.SAMPLED
    if not ok:
        return Story.FAILED
    if attempt > 1:
        return Story.RETRIED
    return Story.SLOW if slow else None


@dataclass
class Credit:
    """How many more spans a batch may have at this worker beyond the sampled ones."""

    left: float = FIRST_CREDIT

    @classmethod
    def of_single(cls, *, traced: bool) -> Self:
        """That of one request that waits in the queue: for its failure only, and if it is `traced`, for its chunk."""
        return cls(RESERVED + 1 if traced else 1.0)

    def earn(self, items: int) -> None:
        """So many items were claimed."""
        self.left += items * CREDIT_AN_ITEM

    def pays(self, story: Story) -> bool:
        """Whether a span may be recorded for this reason. It is paid for."""
        if story is Story.SAMPLED:
            return True
        if self.left < (1 if story is Story.FAILED else RESERVED + 1):
            return False
        self.left -= 1
        return True


@dataclass
class SlowItems:
    """Recognises items that took much longer than most of the recent ones."""

    _recent: deque[float] = field(default_factory=deque)
    _sorted: list[float] = field(default_factory=list)

    def add(self, ms: float) -> bool:
        """Note how long an item took. Returns whether that is slow beside those before it."""
        slow = ms >= self.limit_ms
        self._recent.append(ms)
        insort(self._sorted, ms)
        if len(self._recent) > _KNOWN:
            self._sorted.remove(self._recent.popleft())
        return slow

    @property
    def limit_ms(self) -> float:
        """From here on an item is slow; infinite while too few are known."""
        if len(self._sorted) < _FEW:
            return float("inf")
        return max(SLOW_FACTOR * self._sorted[len(self._sorted) // 2], SLOW_SECONDS * 1000)
