"""What a worker's spans may cost each batch, and the failed items that no span tells of yet (`app.tracing.sampling`)."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

from app import clock, trace_context
from app.queue.types import Item, Kind, Lease
from app.trace_context import SpanContext
from app.tracing import names, recorder, sampling
from app.tracing.sampling import Credit, SlowItems, Story
from app.tracing.span import Kind as SpanKind
from app.tracing.span import Span, Value

UNTOLD_SECONDS = 30.0  # a failed item without a span is listed on one at the latest after this time
_MOST_BATCHES = 1024  # whose credit is remembered


@dataclass
class BatchShare:
    """What this worker has left for a run of a batch. `untold`: its failed items that no span tells of yet."""

    credit: Credit = field(default_factory=Credit)
    untold: list[int] = field(default_factory=list)
    submit: SpanContext | None = None
    request_id: str | None = None
    waiting: asyncio.TimerHandle | None = None

    @property
    def attributes(self) -> dict[str, Value | None]:
        """What every span of the batch has."""
        return {names.BATCH: self.request_id, names.SUBMIT_TRACE: self.submit.trace_id if self.submit else None}

    @property
    def links(self) -> list[SpanContext]:
        """The submit."""
        return [self.submit] if self.submit else []

    def told(self) -> list[int]:
        """Take what is untold, for a span that tells it."""
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None
        taken, self.untold = self.untold[: sampling.MOST_UNTOLD], self.untold[sampling.MOST_UNTOLD :]
        return taken


class BatchShares:
    """Those of a worker. `share`: of the items that are sampled."""

    def __init__(self, engine: str, share: float) -> None:
        self.engine = engine
        self.share = share
        self.slow = SlowItems()
        self._batches: OrderedDict[tuple[int, int], BatchShare] = OrderedDict()

    def batch(self, lease: Lease, first: Item | None) -> BatchShare:
        """The share of the chunk's batch, which earns credit for its items."""
        key = lease.batch_id, lease.run
        share = self._batches.get(key)
        if share is None:
            share = self._batches[key] = _new_share(first)
        self._batches.move_to_end(key)
        if len(self._batches) > _MOST_BATCHES:
            self.report(self._batches.popitem(last=False)[1])
        share.credit.earn(lease.n)
        return share

    def report_soon(self, batch: BatchShare) -> None:
        """If items are untold, a span that lists them follows soon, unless a chunk's span does so before."""
        if batch.untold and batch.waiting is None:
            loop = asyncio.get_running_loop()
            batch.waiting = loop.call_later(UNTOLD_SECONDS, self.report, batch)

    def report(self, batch: BatchShare) -> None:
        """Record spans that list a batch's untold items."""
        while seqs := batch.told():
            now = clock.wall_ns()
            attributes = batch.attributes | {names.UNTOLD_ITEMS: seqs, names.ENGINE: self.engine}
            recorder.record(
                Span(
                    name=names.UNTOLD,
                    kind=SpanKind.INTERNAL,
                    context=SpanContext.new(),
                    start_ns=now,
                    end_ns=now,
                    attributes=attributes,
                    links=batch.links,
                    error=Story.FAILED,
                )
            )

    def close(self) -> None:
        """Report all that is untold."""
        for batch in self._batches.values():
            self.report(batch)


def _new_share(item: Item | None) -> BatchShare:
    if item is None:
        return BatchShare()
    submit = trace_context.context_of(item.traceparent)
    single = item.kind != Kind.BATCH
    credit = Credit.of_single(traced=submit is not None and submit.sampled) if single else Credit()
    return BatchShare(credit, submit=submit, request_id=item.request_id)
