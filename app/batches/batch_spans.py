"""The spans of a batch outside its workers: its submit and its end.

Both have the trace id of the submit, and so have the attempts at its webhooks. Its chunks have traces of their own.
"""

from collections.abc import Iterable

from app import clock, trace_context
from app.queue.ingest import NewBatch
from app.queue.settling import Settled
from app.states import BatchState
from app.trace_context import SpanContext
from app.tracing import names, recorder
from app.tracing.span import Kind, Origin, Span


def submitted(origin: Origin | None, batch: NewBatch, account_id: str, rules: Iterable[str]) -> None:
    """Record the submit of a batch that is stored."""
    if origin is None:
        return
    recorder.record(
        Span(
            name=names.SUBMIT,
            kind=Kind.PRODUCER,
            context=origin.context,
            parent=origin.parent,
            start_ns=origin.start_ns,
            end_ns=clock.wall_ns(),
            attributes={
                names.MESSAGING_SYSTEM: names.SYSTEM,
                names.MESSAGING_OPERATION: "send",
                names.MESSAGING_COUNT: batch.total,
                names.GEN_AI_OPERATION: names.operation(batch.endpoint),
                names.GEN_AI_MODEL: batch.model,
                names.BATCH: str(batch.request_id),
                names.ACCOUNT: account_id,
                names.KIND: batch.kind,
                names.CORRELATION: batch.correlation_id,
                names.POLICY_RULES: list(rules) or None,
            },
        )
    )


def end_of(batch: Settled) -> str | None:
    """The trace context of a batch's end, which its last event carries; that of the submit while no spans are recorded."""
    context = _end(batch) if recorder.on() else None
    return context.header if context else batch.traceparent


def ended(settled: Iterable[Settled]) -> None:
    """Record the ends of batches. Call after the commit."""
    for batch in settled if recorder.on() else ():
        context, submit = _end(batch), trace_context.context_of(batch.traceparent)
        now = clock.wall_ns()
        recorder.record(
            Span(
                name=names.END,
                kind=Kind.CONSUMER,
                context=context or SpanContext.new(),
                parent=submit,
                start_ns=now,
                end_ns=now,
                attributes={
                    names.MESSAGING_SYSTEM: names.SYSTEM,
                    names.MESSAGING_OPERATION: "settle",
                    names.MESSAGING_COUNT: batch.total,
                    names.GEN_AI_MODEL: batch.model,
                    names.GEN_AI_INPUT_TOKENS: batch.prompt_tokens,
                    names.GEN_AI_OUTPUT_TOKENS: batch.completion_tokens,
                    names.BATCH: str(batch.request_id),
                    names.ACCOUNT: batch.account_id,
                    names.KIND: batch.kind,
                    names.RUN: batch.run,
                    names.STATE: batch.state,
                    names.ITEMS_OK: batch.ok,
                    names.ITEMS_FAILED: batch.failed,
                    names.SECONDS: round(batch.seconds, 3),
                },
                error=str(batch.state) if batch.state in (BatchState.FAILED, BatchState.EXPIRED) else None,
            )
        )


def _end(batch: Settled) -> SpanContext | None:
    submit = trace_context.context_of(batch.traceparent)
    return submit.named(f"end {batch.run}") if submit else None
