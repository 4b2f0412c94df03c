"""Which items start, and when: the allowance, the pace of prompts, and suspects, which run alone.

A suspect is the item of a chunk whose engine or worker died too often. It may take the engine down.
"""

from collections import deque
from collections.abc import Callable

import structlog

from app import clock
from app.engines.mending import prompt_estimate
from app.queue.types import Item
from workers.engine.step_budget import UNLIMITED_TOKENS
from workers.gpu.item_runner import ItemRunner
from workers.gpu.open_chunk import OpenChunk, OpenChunks
from workers.gpu.tuning import WorkerTuning

MOST_STARTS = 4096  # whose moments are remembered

log = structlog.get_logger()


class Admission:
    """Holds the controller's last decision and applies it to the open chunks. `yields` counts yielded requests."""

    def __init__(self, chunks: OpenChunks, runner: ItemRunner, tuning: WorkerTuning) -> None:
        self.allowance = 0
        self.yields = 0
        self._sync_idle = True
        self._prefill_tokens = UNLIMITED_TOKENS
        self._suspect_since: float | None = None
        self._starts: deque[float] = deque(maxlen=MOST_STARTS)
        self._chunks = chunks
        self._runner = runner
        self._tuning = tuning

    def limit(self, allowance: int, *, prefill_tokens: int, sync_idle: bool) -> None:
        """Set the limits of the next `admit`; see `Puller.allow`."""
        self.allowance, self._prefill_tokens, self._sync_idle = allowance, prefill_tokens, sync_idle

    @property
    def hungry(self) -> bool:
        """Whether the pending items may soon be too few for the allowance."""
        alone = any(chunk.alone and not chunk.idle for chunk in self._chunks.values())
        needed = 0 if alone else max(1, self.allowance // 2)
        return self.allowance > 0 and self._chunks.pending < needed

    @property
    def free_share(self) -> float:
        """The share of the allowance that is not in use."""
        return max(0.0, 1 - self._chunks.in_flight / self.allowance) if self.allowance else 0.0

    def admit(self, start: Callable[[OpenChunk, Item], None]) -> None:
        """Start every item that may start now."""
        chunks = self._chunks
        if chunks.draining or any(chunk.alone and chunk.running for chunk in chunks.values()):
            return
        suspect = None
        for chunk in chunks.values():
            if chunk.alone:
                suspect = suspect or (chunk if chunk.pending else None)
                continue
            while chunk.pending and chunks.in_flight < self.allowance and self._paced(chunk, chunk.pending[0]):
                self._starts.append(clock.monotonic())
                start(chunk, chunk.pending.popleft())
        if suspect is None:
            self._suspect_since = None
        elif self.allowance > 0 and chunks.in_flight == 0 and self._suspect_may_start():
            start(suspect, suspect.pending.popleft())

    def started_within(self, seconds: float) -> int:
        """How many items have started in the last so many seconds."""
        since = clock.monotonic() - seconds
        return sum(moment >= since for moment in self._starts)

    def yield_requests(self, surplus: int, *, all_yield: bool = False) -> None:
        """Abort so many requests; requests that are being aborted count. They keep their tokens and go on later.

        `all_yield`: see `RequestsInEngine.victims`.
        """
        chunks = self._chunks.values()
        leaving = {chunk.running[seq] for chunk in chunks for seq in chunk.yielding}
        victims = set(self._runner.ledger.victims(surplus - len(leaving), leaving, all_yield=all_yield))
        for chunk in chunks:
            for seq in [seq for seq, task in chunk.running.items() if task in victims]:
                chunk.park(seq)
        self.yields += len(victims)
        if victims:
            log.info("requests.yielded", requests=len(victims))

    def _paced(self, chunk: OpenChunk, item: Item) -> bool:
        """Whether the engine may get another prompt: the first one, or one that fits beside the uncomputed prompts."""
        if self._prefill_tokens >= UNLIMITED_TOKENS:
            return True
        in_engine = self._runner.calling
        starting = sum(
            _prompt_tokens(each, each.progress[seq].item)
            for each in self._chunks.values()
            for seq, task in each.running.items()
            if task not in in_engine and seq in each.progress
        )
        computing = self._runner.ledger.load().prefill_tokens + starting
        return self._prefill_tokens > 0 and (
            not computing or computing + _prompt_tokens(chunk, item) <= self._prefill_tokens
        )

    def _suspect_may_start(self) -> bool:
        """Wait for an engine without synchronous requests, which a suspect could abort. The wait is limited."""
        now = clock.monotonic()
        if self._suspect_since is None:
            self._suspect_since = now
        return self._sync_idle or now - self._suspect_since >= self._tuning.suspect_wait_seconds


def _prompt_tokens(chunk: OpenChunk, item: Item) -> int:
    """An estimate. For a body in the object store it is the chunk's mean, which includes the answer."""
    return chunk.lease.est_tokens // max(1, chunk.lease.n) if item.stored else prompt_estimate(item.body)
