"""The state of the leased chunks in this process."""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from app import clock
from app.engines.outcome import FAILED, Done, ErrorClass, Reject, Retry, Usage, error_class
from app.metering import sketch
from app.queue import poison
from app.queue.bodies import BatchSeal
from app.queue.poison import ChunkVerdict
from app.queue.types import ChunkTimes, Item, Lease, Result
from workers.gpu.chunk_span import ChunkSpan
from workers.gpu.requests_in_engine import ItemProgress


@dataclass(eq=False)
class OpenChunk:
    """A lease with its pending items, its running items, and its results that are not flushed yet.

    An item in none of the three has a durable result, or goes back to the queue when the lease is finished. `suspects` and
    `retried` hold the reason for some of these. `progress`: what an item keeps between its calls. The requests of items in
    `yielding` are being aborted; these items return to the front of `pending`, unless the chunk is `closing`. `has_events`: each
    result is also an event. `feeds`: the results are handed on to another batch. `faults`: how often in a row the first of
    `results` could not be stored. `engine_seconds`: what its items had of the engine. `first_tokens`, `durations`, `unrun`: of
    stored results, as in `ChunkTimes`. `loaded_at`: the monotonic second at which its items were read. `span`: None while no
    spans are recorded.
    `seal`: of a sealed batch; its items are opened, its results are not sealed yet.
    """

    lease: Lease
    pending: deque[Item]
    running: dict[int, "asyncio.Task[None]"] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    suspects: set[int] = field(default_factory=set)
    retried: set[int] = field(default_factory=set)
    progress: dict[int, ItemProgress] = field(default_factory=dict)
    yielding: set[int] = field(default_factory=set)
    backoff_seconds: float = 0.0
    alone: bool = False
    split: bool = False
    closing: bool = False
    has_events: bool = False
    feeds: bool = False
    faults: int = 0
    engine_seconds: float = 0.0
    first_tokens: bytearray = field(default_factory=bytearray)
    durations: bytearray = field(default_factory=bytearray)
    unrun: int = 0
    loaded_at: float = field(default_factory=clock.monotonic)
    span: ChunkSpan | None = None
    seal: BatchSeal | None = None

    @classmethod
    def of(
        cls,
        lease: Lease,
        items: Iterable[Item],
        limit: int,
        span: ChunkSpan | None = None,
        seal: BatchSeal | None = None,
    ) -> "OpenChunk":
        """A chunk of which nothing has started. After too many deaths it is split, or its item is given up."""
        chunk = cls(lease, deque(items), span=span, seal=seal)
        chunk.has_events = any(item.notify for item in chunk.pending)
        chunk.feeds = any(item.feeds for item in chunk.pending)
        match poison.verdict(lease, len(chunk.pending), limit):
            case ChunkVerdict.ALONE:
                chunk.alone = True
            case ChunkVerdict.SPLIT:
                chunk.split = True
                chunk.give_back()
            case ChunkVerdict.GIVE_UP:
                chunk.settled(chunk.pending.popleft().seq, _given_up(lease), tries=0)
        return chunk

    @property
    def idle(self) -> bool:
        """Whether no item is pending or running. Then the chunk is flushed and finished."""
        return not self.pending and not self.running

    def delay(self, seconds: float) -> None:
        """Items that go back to the queue are not claimed again for at least this long."""
        self.backoff_seconds = max(self.backoff_seconds, seconds)

    def give_back(self) -> int:
        """Start nothing more. Unfinished items go back to the queue. Returns the generated tokens that are lost."""
        self.closing = True
        lost = sum(self._lost(item.seq) for item in self.pending)
        self.pending.clear()
        return lost

    def keep(self, most: int) -> int:
        """Of the pending items, start only so many; the others go back to the queue. Returns as `give_back`."""
        return sum(self._lost(self.pending.pop().seq) for _ in range(len(self.pending) - most))

    def start(self, item: Item, task: "asyncio.Task[None]") -> ItemProgress:
        """Note that an item starts, for the first time or after a yield."""
        self.running[item.seq] = task
        return self.progress.setdefault(item.seq, ItemProgress(item, loaded_at=self.loaded_at, seal=self.seal))

    def park(self, seq: int) -> None:
        """Abort an item's request. The item goes on later from its tokens, before all pending items."""
        self.progress[seq].yields += 1
        self.yielding.add(seq)
        self.running[seq].cancel()

    def ended(self, seq: int) -> int:
        """Note the end of an item's task. Returns the generated tokens that are lost; 0 if the item is done, or yields and keeps
        them.
        """
        self.running.pop(seq, None)
        if seq in self.yielding:
            self.yielding.remove(seq)
            if not self.closing:
                self.pending.appendleft(self.progress[seq].item)
                return self.progress[seq].parked()
        return self._lost(seq)

    def _lost(self, seq: int) -> int:
        progress = self._without(seq)
        return progress.generated if progress else 0

    def _without(self, seq: int) -> ItemProgress | None:
        """Forget the progress of an item that is not continued, but for its share of the engine's time."""
        progress = self.progress.pop(seq, None)
        self.engine_seconds += progress.engine_seconds if progress else 0.0
        return progress

    def abort(self) -> None:
        """Abort the requests in the engine."""
        for task in self.running.values():
            task.cancel()

    def settled(self, seq: int, outcome: Done | Reject | Retry, tries: int) -> None:
        """Note the final outcome of an item. `tries`: how often it was sent during this lease."""
        progress = self._without(seq)
        yields = progress.yields if progress else 0
        self.yielding.discard(seq)
        if self.span is not None:
            item, sent_at = (progress.item, progress.sent_at) if progress else (None, None)
            self.span.settled(seq, item, sent_at, outcome)
        attempt = self.lease.attempt + self.lease.deaths + self.lease.retries + tries
        if isinstance(outcome, Done):
            result = _result(seq, True, attempt, outcome.usage, outcome.body, yields)
        else:
            body = orjson.dumps(_error(outcome))
            result = _result(seq, False, attempt, Usage(), body, yields)
            result = result._replace(error=error_class(outcome).value)
        self.results.append(_timed(result, progress) if progress else result)

    def sealed(self, results: list[Result]) -> list[Result]:
        """The results as they are stored. The body of one whose body is the key of an object stays."""
        seal, run = self.seal, self.lease.run
        if seal is None:
            return results
        return [r if r.stored else r._replace(body=seal.result(r.seq, run, r.body)) for r in results]

    def note_stored(self, results: Iterable[Result]) -> None:
        """Count the times of results that are stored, and record the spans of their items."""
        results = list(results)
        if self.span is not None:
            self.span.stored(results)
        for result in results:
            self.unrun += result.attempt == 0
            if result.ok and result.first_token_ms is not None:
                self.first_tokens.append(sketch.bucket(result.first_token_ms))
            if result.ok and result.duration_ms is not None:
                self.durations.append(sketch.bucket(result.duration_ms))

    @property
    def times(self) -> ChunkTimes:
        """What was measured during the lease."""
        return ChunkTimes(
            round(self.engine_seconds * 1000), bytes(self.first_tokens), bytes(self.durations), self.unrun
        )


class OpenChunks(dict[int, OpenChunk]):
    """The open chunks of a worker, by id. `draining`: nothing more is claimed or started."""

    draining = False

    @property
    def in_flight(self) -> int:
        """Items that have started and have no outcome."""
        return sum(len(chunk.running) for chunk in self.values())

    @property
    def pending(self) -> int:
        """Items that have not started."""
        return sum(len(chunk.pending) for chunk in self.values())

    def keep(self, most: int) -> int:
        """Of all pending items, start only so many, those of the oldest chunks. Suspects stay. Returns as `give_back`."""
        lost = 0
        for chunk in self.values():
            if not chunk.alone:
                lost += chunk.keep(most)
                most -= len(chunk.pending)
        return lost


def _error(outcome: Reject | Retry) -> dict[str, Any]:
    """The error body of an item's result."""
    if isinstance(outcome, Retry):
        return {"code": outcome.code, "message": outcome.message}
    error: dict[str, Any] = {"code": outcome.code, "message": outcome.message}
    details = {"param": outcome.param, "reason": outcome.reason}
    return error | (details if outcome.param or outcome.reason else {})


def _given_up(lease: Lease) -> Reject:
    """The error of an item that may have killed its engines or workers."""
    return Reject(FAILED, poison.give_up_message(lease), kind=ErrorClass.GIVEN_UP)


def _timed(result: Result, progress: ItemProgress) -> Result:
    """The result with its times, which are known once the item was sent."""
    if progress.sent_at is None:
        return result
    first, waited = progress.first_token_at, progress.item.waited_seconds
    return result._replace(
        first_token_ms=None if first is None else (first - progress.sent_at) * 1000,
        duration_ms=(clock.monotonic() - progress.sent_at) * 1000,
        queued_ms=None if waited is None else (waited + progress.sent_at - progress.loaded_at) * 1000,
    )


def _result(seq: int, ok: bool, attempt: int, usage: Usage, body: bytes, yields: int) -> Result:
    tokens = usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens
    return Result(seq, ok, attempt, *tokens, body, yields, details=usage.details or None)
