"""The spans of a worker: one for a chunk, and one for each of its items that has a story (`app.tracing.sampling`).

A chunk's span begins a trace of its own, linked to the submit, because a batch may run for hours and on many engines. The
context of each request in the engine is decided before it is sent: where the item is known to have a span, the engine's own
span hangs below it, and otherwise the context says that nothing is recorded.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import orjson

from app import clock
from app.engines.outcome import Done, EngineDown, Outcome, Reject, Retry
from app.queue.types import Item, Lease, Result
from app.trace_context import SpanContext
from app.tracing import names, recorder, sampling
from app.tracing.sampling import Story
from app.tracing.span import Kind, Span, Value
from workers.gpu.batch_share import BatchShares


@dataclass(frozen=True, slots=True)
class _Ending:
    """How an item ended, until its result is stored."""

    item: Item | None
    start_ns: int | None
    end_ns: int
    error: str | None


class ChunkSpan:
    """The span of one lease, and of its items."""

    @classmethod
    def of(cls, spans: BatchShares, lease: Lease, items: Sequence[Item]) -> "ChunkSpan | None":
        """The span of a chunk that was claimed; None while no spans are recorded."""
        return cls(spans, lease, items) if recorder.on() else None

    def __init__(self, spans: BatchShares, lease: Lease, items: Sequence[Item]) -> None:
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
        context, known = self._contexts.pop(item.seq, (None, None))
        if known is not Story.RETRIED and not self._batch.credit.pays(Story.RETRIED):
            return  # a sampled item too: it may go back without end
        ending = _ending(item, sent_at, outcome)
        self._record_item(
            item.seq, ending, Story.RETRIED, context, {names.ATTEMPT: self._before + max(1, tries)}, ending.error
        )

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
        if len(batch.untold) >= sampling.MOST_UNTOLD or batch.credit.pays(story):
            self._record(returned, engine_seconds)
        self._spans.report_soon(batch)

    def _record(self, returned: int | None, engine_seconds: float) -> None:
        lease, batch = self._lease, self._batch
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
                attributes=attributes | self._counts | self._tokens | batch.attributes,
                links=batch.links,
                error="lease_lost" if returned is None else None,
            )
        )

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
                attributes=attributes | more | self._batch.attributes,
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
