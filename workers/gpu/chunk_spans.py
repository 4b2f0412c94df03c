"""The spans of a worker: one for a chunk, and one for each of its items that has a story (`app.tracing.sampling`).

A chunk's span begins a trace of its own, linked to the submit, because a batch may run for hours and on many engines. The
context of each request in the engine is decided before it is sent: where the item is known to have a span, the engine's own
span hangs below it, and otherwise the context says that nothing is recorded.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import orjson

from app import clock, trace_context
from app.engines.outcome import Done, EngineDown, Outcome, Reject, Retry
from app.queue.types import Item, Lease, Result
from app.trace_context import SpanContext
from app.tracing import names, recorder, sampling
from app.tracing.sampling import Credit, SlowItems, Story
from app.tracing.span import Kind, Span, Value

UNTOLD_SECONDS = 30.0  # a failed item without a span is listed on one at the latest after this time
_MOST_BATCHES = 1024  # whose credit is remembered


@dataclass
class _BatchShare:
    """What this worker has left for a run of a batch. `untold`: its failed items that no span tells of yet."""

    credit: Credit = field(default_factory=Credit)
    untold: list[int] = field(default_factory=list)
    submit: SpanContext | None = None
    request_id: str | None = None
    waiting: asyncio.TimerHandle | None = None

    def told(self) -> list[int]:
        """Take what is untold, for a span that tells it."""
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None
        taken, self.untold = self.untold[: sampling.MOST_UNTOLD], self.untold[sampling.MOST_UNTOLD :]
        return taken


@dataclass(frozen=True, slots=True)
class _Ending:
    """How an item ended, until its result is stored."""

    item: Item | None
    start_ns: int | None
    end_ns: int
    error: str | None


class ChunkSpans:
    """The spans of all chunks of a worker. `share`: of the items that are sampled."""

    def __init__(self, engine: str, share: float) -> None:
        self.engine = engine
        self.share = share
        self.slow = SlowItems()
        self._batches: OrderedDict[tuple[int, int], _BatchShare] = OrderedDict()

    def open(self, lease: Lease, items: Iterable[Item]) -> "ChunkSpan | None":
        """The span of a chunk that was claimed; None while no spans are recorded."""
        return ChunkSpan(self, lease, list(items)) if recorder.on() else None

    def batch(self, lease: Lease, first: Item | None) -> _BatchShare:
        """The share of the chunk's batch, which earns credit for its items."""
        key = lease.batch_id, lease.run
        share = self._batches.setdefault(key, _BatchShare())
        self._batches.move_to_end(key)
        if len(self._batches) > _MOST_BATCHES:
            self.report(self._batches.popitem(last=False)[1])
        share.credit.earn(lease.n)
        if first is not None:
            share.submit = trace_context.context_of(first.traceparent)
            share.request_id = None if first.request_id is None else str(first.request_id)
        return share

    def leave_untold(self, batch: _BatchShare, seqs: list[int]) -> None:
        """Failed items have no span. One that lists them follows soon, if no chunk's span does before."""
        batch.untold += seqs
        if batch.untold and batch.waiting is None:
            loop = asyncio.get_running_loop()
            batch.waiting = loop.call_later(UNTOLD_SECONDS, self.report, batch)

    def report(self, batch: _BatchShare) -> None:
        """Record spans that list a batch's untold items."""
        while seqs := batch.told():
            now = clock.wall_ns()
            attributes = _batch_attributes(batch) | {names.UNTOLD_ITEMS: seqs, names.ENGINE: self.engine}
            recorder.record(
                Span(
                    name=names.UNTOLD,
                    kind=Kind.INTERNAL,
                    context=SpanContext.new(),
                    start_ns=now,
                    end_ns=now,
                    attributes=attributes,
                    links=_links(batch),
                    error=Story.FAILED,
                )
            )

    def close(self) -> None:
        """Report all that is untold."""
        for batch in self._batches.values():
            self.report(batch)


class ChunkSpan:
    """The span of one lease, and of its items."""

    def __init__(self, spans: ChunkSpans, lease: Lease, items: list[Item]) -> None:
        self._spans = spans
        self._lease = lease
        self._first = items[0] if items else None
        self._batch = spans.batch(lease, self._first)
        self._context = SpanContext.new()
        self._unsampled = self._context.unsampled().header
        self._start_ns = clock.wall_ns()
        self._before = lease.attempt + lease.deaths + lease.retries
        self._contexts: dict[int, tuple[SpanContext, Story]] = {}
        self._endings: dict[int, _Ending] = {}
        self._untold: list[int] = []
        self._counts = {names.ITEMS_OK: 0, names.ITEMS_FAILED: 0, names.YIELDS: 0}
        self._tokens = {names.GEN_AI_INPUT_TOKENS: 0, names.GEN_AI_OUTPUT_TOKENS: 0, names.GEN_AI_CACHED_TOKENS: 0}
        self._recorded = False
        self._closed = False

    def header(self, item: Item) -> str:
        """The `traceparent` of the item's requests. It is decided here whether the engine's spans hang below one of ours."""
        story = None
        if sampling.chosen(f"{self._lease.batch_id}/{item.seq}", self._spans.share):
            story = Story.SAMPLED
        elif self._before and self._batch.credit.pays(Story.RETRIED):
            story = Story.RETRIED
        if story is None:
            return self._unsampled
        context = SpanContext.new(self._context)
        self._contexts[item.seq] = context, story
        return context.header

    def settled(self, seq: int, item: Item | None, sent_at: float | None, outcome: Done | Reject | Retry) -> None:
        """The outcome of an item is final. Its span follows when its result is stored."""
        self._endings[seq] = _ending(item, sent_at, outcome)

    def sent_back(self, item: Item, sent_at: float | None, outcome: Outcome, tries: int) -> None:
        """An item goes back to the queue, to be tried again later."""
        context, story = self._contexts.pop(item.seq, (None, Story.RETRIED))
        if context is None and not self._batch.credit.pays(story):
            return
        ending = _ending(item, sent_at, outcome)
        self._record_item(item.seq, ending, story, context, {names.ATTEMPT: self._before + max(1, tries)}, ending.error)

    def stored(self, results: Iterable[Result]) -> None:
        """Results were stored. Record the spans of their items."""
        for result in results:
            self._count(result)
            slow = result.duration_ms is not None and self._spans.slow.add(result.duration_ms)
            ending = self._endings.pop(result.seq, None)
            context, known = self._contexts.pop(result.seq, (None, None))
            story = known or sampling.story(ok=result.ok, attempt=result.attempt, slow=slow, sampled=False)
            if known is Story.RETRIED and not result.ok:
                story = Story.FAILED
            if story is None:
                continue
            if context is None and not self._batch.credit.pays(story):
                self._untold += [] if result.ok else [result.seq]
                continue
            ending = ending or _Ending(None, None, clock.wall_ns(), None)
            error = None if result.ok else ending.error or "not_stored"
            self._record_item(result.seq, ending, story, context, _result_attributes(result), error)

    def closed(self, returned: int | None, engine_seconds: float) -> None:
        """The lease has ended, with so many items that went back; None: it was lost."""
        if self._closed:
            return
        self._closed = True
        batch = self._batch
        batch.untold += self._untold
        story = Story.SAMPLED if self._recorded else Story.FAILED if returned is None else Story.BARE
        if len(batch.untold) < sampling.MOST_UNTOLD and not batch.credit.pays(story):
            self._spans.leave_untold(batch, [])
            return
        lease = self._lease
        attributes: dict[str, Value | None] = {
            names.MESSAGING_SYSTEM: names.SYSTEM,
            names.MESSAGING_OPERATION: "process",
            names.MESSAGING_COUNT: lease.n,
            names.GEN_AI_MODEL: self._first.model if self._first else None,
            names.ENGINE: self._spans.engine,
            names.ENGINE_SECONDS: round(engine_seconds, 3),
            names.CHUNK_ID: lease.chunk_id,
            names.RUN: lease.run,
            names.ATTEMPT: self._before + 1,
            names.ITEMS_RETURNED: returned,
            names.UNTOLD_ITEMS: batch.told() or None,
        }
        recorder.record(
            Span(
                name=names.CHUNK,
                kind=Kind.CONSUMER,
                context=self._context,
                start_ns=self._start_ns,
                end_ns=clock.wall_ns(),
                attributes=attributes | self._counts | self._tokens | _batch_attributes(batch),
                links=_links(batch),
                error="lease_lost" if returned is None else None,
            )
        )
        self._spans.leave_untold(batch, [])

    def _count(self, result: Result) -> None:
        self._counts[names.ITEMS_OK if result.ok else names.ITEMS_FAILED] += 1
        self._counts[names.YIELDS] += result.yields
        self._tokens[names.GEN_AI_INPUT_TOKENS] += result.prompt_tokens
        self._tokens[names.GEN_AI_OUTPUT_TOKENS] += result.completion_tokens
        self._tokens[names.GEN_AI_CACHED_TOKENS] += result.cached_tokens

    def _record_item(
        self,
        seq: int,
        ending: _Ending,
        story: Story,
        context: SpanContext | None,
        more: dict[str, Value | None],
        error: str | None,
    ) -> None:
        self._recorded = True
        item = ending.item or self._first
        operation, model = (names.operation(item.endpoint), item.model) if item else ("unfit", None)
        attributes: dict[str, Value | None] = {
            names.GEN_AI_OPERATION: operation,
            names.GEN_AI_PROVIDER: names.PROVIDER,
            names.GEN_AI_MODEL: model,
            names.ITEM: seq,
            names.RUN: self._lease.run,
            names.STORY: story,
            names.ENGINE: self._spans.engine,
            names.ERROR: error,
        }
        recorder.record(
            Span(
                name=f"{operation} {model}" if model else operation,
                kind=Kind.CLIENT,
                context=context or SpanContext.new(self._context),
                parent=self._context,
                start_ns=ending.start_ns or ending.end_ns,
                end_ns=ending.end_ns,
                attributes=attributes | more | _batch_attributes(self._batch),
                error=error,
            )
        )


def _ending(item: Item | None, sent_at: float | None, outcome: Outcome) -> _Ending:
    start = None if sent_at is None else clock.wall_ns_of(sent_at)
    return _Ending(item, start, clock.wall_ns(), _error(outcome))


def _error(outcome: Outcome) -> str | None:
    """The type of the error. Never its message, which may quote the prompt."""
    match outcome:
        case EngineDown():
            return "engine_down"
        case Retry(busy=True):
            return "engine_busy"
        case Reject(code=code) | Retry(code=code):
            return names.error(code)
    return None


def _result_attributes(result: Result) -> dict[str, Value | None]:
    first = result.first_token_ms
    return {
        names.ATTEMPT: result.attempt,
        names.YIELDS: result.yields,
        names.GEN_AI_INPUT_TOKENS: result.prompt_tokens if result.ok else None,
        names.GEN_AI_OUTPUT_TOKENS: result.completion_tokens if result.ok else None,
        names.GEN_AI_CACHED_TOKENS: result.cached_tokens if result.ok else None,
        names.FIRST_TOKEN_SECONDS: None if first is None else round(first / 1000, 6),
        names.GEN_AI_FINISH_REASONS: _finish_reasons(result) or None,
    }


def _finish_reasons(result: Result) -> list[str]:
    """Why the answer's choices ended; empty if it has none, or lies in the object store."""
    with suppress(orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        if result.ok and not result.stored:
            reasons = [choice.get("finish_reason") for choice in orjson.loads(result.body)["choices"]]
            return [reason for reason in reasons if isinstance(reason, str)]
    return []


def _batch_attributes(batch: _BatchShare) -> dict[str, Value | None]:
    return {names.BATCH: batch.request_id, names.SUBMIT_TRACE: batch.submit.trace_id if batch.submit else None}


def _links(batch: _BatchShare) -> list[SpanContext]:
    return [batch.submit] if batch.submit else []
