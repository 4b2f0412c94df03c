"""The log lines about each batch: its start, each tenth of its progress, and its end. Pure.

A batch of one request (a background response or a flex call) is logged only at its end.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from app import clock, trace_context
from app.queue.running_batches import BatchProgress
from app.queue.settling import Settled
from app.queue.types import Kind

MOST = 10_000  # running batches that are remembered; the start of a forgotten batch is logged again
_LEAST_SECONDS = 0.5  # a rate over a shorter time is not meaningful

LogLine = tuple[str, dict[str, Any]]


@dataclass(slots=True)
class _Seen:
    """When a batch was first seen, how many items were done then, and the last tenth that was logged."""

    at: float
    done: int
    tenth: int = 0


class BatchLog:
    """Remembers what was logged. Every method yields log lines: an event name and its fields."""

    def __init__(self, now: Callable[[], float] = clock.monotonic) -> None:
        self._now = now
        self._seen: OrderedDict[tuple[int, int], _Seen] = OrderedDict()

    def running(self, batches: Sequence[BatchProgress]) -> Iterator[LogLine]:
        """The start of batches that have items in an engine."""
        for batch in batches:
            if batch.kind == Kind.BATCH and (batch.batch_id, batch.run) not in self._seen:
                yield self._start(batch)

    def moved(self, batches: Sequence[BatchProgress]) -> Iterator[LogLine]:
        """The progress of batches of which items were counted. The last tenth is left to `ended`."""
        for batch in batches:
            yield from self.running([batch])
            seen = self._seen.get((batch.batch_id, batch.run))
            tenth = 10 * batch.done // max(1, batch.total)
            if seen is not None and seen.tenth < tenth < 10:
                seen.tenth = tenth
                facts = {"percent": 100 * batch.done // batch.total, "done": batch.done, "failed": batch.failed}
                yield "batch.progress", self._named(batch) | facts | self._pace(seen, batch.done)

    def ended(self, batches: Sequence[Settled]) -> Iterator[LogLine]:
        """The end of batches."""
        for batch in batches:
            seen, done = self._seen.pop((batch.batch_id, batch.run), None), batch.ok + batch.failed
            pace = self._pace(seen, done) if seen else {}
            facts = {
                "request_id": str(batch.request_id),
                "ok": batch.ok,
                "failed": batch.failed,
                "unfinished": batch.total - done,
                "prompt_tokens": batch.prompt_tokens,
                "completion_tokens": batch.completion_tokens,
                "seconds": round(batch.seconds, 1),
            }
            trace_id = trace_context.trace_id(batch.traceparent)
            yield f"batch.{batch.state}", facts | pace | ({"trace_id": trace_id} if trace_id else {})

    def _start(self, batch: BatchProgress) -> LogLine:
        self._seen[batch.batch_id, batch.run] = _Seen(self._now(), batch.done)
        if len(self._seen) > MOST:
            self._seen.popitem(last=False)
        return "batch.started", self._named(batch) | {"model": batch.model, "run": batch.run}

    def _named(self, batch: BatchProgress) -> dict[str, Any]:
        return {"request_id": str(batch.request_id), "items": batch.total}

    def _pace(self, seen: _Seen, done: int) -> dict[str, float]:
        """The rate since the batch was first seen, so without its time in the queue. Empty if it is not meaningful yet."""
        seconds = self._now() - seen.at
        known = seconds >= _LEAST_SECONDS and done > seen.done
        return {"items_per_second": round((done - seen.done) / seconds, 1)} if known else {}
