"""The span of one attempt at a delivery. It lies in the trace of the submit, and links to the batch's end if that is its event.

A batch may have an event for each item, so of those only a share has spans: that of `app.tracing.sampling`, by the delivery.
"""

from yarl import URL

from app import clock, trace_context
from app.events import ITEM_KINDS
from app.trace_context import SpanContext
from app.tracing import names, recorder, sampling
from app.tracing.span import Kind, Span
from app.webhooks.claims import Claim
from app.webhooks.response_policy import Answer


class AttemptSpan:
    """Begins with the attempt. `share`: of the deliveries of item events that have spans."""

    def __init__(self, claim: Claim, share: float) -> None:
        self._claim = claim
        self._start_ns = clock.wall_ns()
        self._event = trace_context.context_of(claim.event.data.traceparent)
        sampled = claim.event.kind not in ITEM_KINDS or sampling.chosen(str(claim.delivery_id), share)
        self._context = SpanContext.new(self._event) if recorder.on() and sampled else None

    @property
    def headers(self) -> dict[str, str]:
        """The trace context for the receiver, whose spans then hang below this one."""
        if self._context is not None and self._event is not None:
            return trace_context.sent(self._context.header)
        return trace_context.onward(self._claim.event.data.traceparent)

    def end(self, answer: Answer, verdict: str) -> None:
        """The attempt has ended, and its outcome is recorded."""
        claim = self._claim
        if self._context is None:
            return
        recorder.record(
            Span(
                name=names.WEBHOOK,
                kind=Kind.CLIENT,
                context=self._context,
                parent=self._event,
                start_ns=self._start_ns,
                end_ns=self._start_ns + answer.duration_ms * 1_000_000,
                attributes={
                    names.HTTP_METHOD: "POST",
                    names.HTTP_STATUS: answer.status or None,
                    names.SERVER_ADDRESS: URL(claim.url).host,
                    names.ERROR: answer.error,
                    names.BATCH: claim.event.data.request_id,
                    names.ACCOUNT: claim.event.data.account_id,
                    names.EVENT: claim.event.kind,
                    names.WEBHOOK_ID: claim.event.webhook_id,
                    names.ENDPOINT: str(claim.endpoint_id),
                    names.DELIVERY: claim.delivery_id,
                    names.ATTEMPT: claim.attempt,
                    names.VERDICT: verdict,
                },
                links=[self._event] if self._event else [],
                error=None if verdict == "deliver" else answer.error or f"status_{answer.status}",
            )
        )
