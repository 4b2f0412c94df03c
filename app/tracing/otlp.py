"""Sends spans by OTLP over HTTP, with OpenTelemetry's SDK. The only module that imports it.

The SDK's batch processor sends from a thread of its own. While the collector is slow or gone, at most `MOST_WAITING` spans
wait; further ones are dropped and counted, so nobody ever waits for a collector. The SDK reads the usual variables itself:
`OTEL_EXPORTER_OTLP_HEADERS`, `_TIMEOUT`, `_COMPRESSION`, `_CERTIFICATE`, `OTEL_RESOURCE_ATTRIBUTES`, and
`OTEL_BSP_SCHEDULE_DELAY`, the milliseconds between two exports (5000).
"""

import logging
import threading
from collections.abc import Sequence

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace import SpanContext as SdkContext
from prometheus_client import Counter

from app import __version__
from app.trace_context import SpanContext
from app.tracing.recorder import no_spans
from app.tracing.span import Kind, Span

MOST_WAITING = 8192
_AT_ONCE = 512
_CLOSE_SECONDS = 3.0
_KINDS = {kind: SpanKind[kind.name] for kind in Kind}
_SCOPE = InstrumentationScope("slackwater", __version__)

log = structlog.get_logger()


class Exporter:
    """The sink of a process, whose spans have the service name `slackwater-PART`."""

    def __init__(self, endpoint: str, part: str) -> None:
        kind, _, instance = part.partition("/")
        self._resource = Resource.create(
            {
                "service.name": f"slackwater-{kind}",
                "service.version": __version__,
                **({"service.instance.id": instance} if instance else {}),
            }
        )
        logging.getLogger("opentelemetry").setLevel(
            logging.CRITICAL
        )  # it would log each attempt; `_Counted` logs changes
        self.outcomes = no_spans()
        self._counted = _Counted(OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces"), endpoint, self.outcomes)
        self._processor = BatchSpanProcessor(
            self._counted,
            max_queue_size=MOST_WAITING + _AT_ONCE,  # so that it is never full, and we know what was dropped
            max_export_batch_size=_AT_ONCE,
        )
        self._taken = 0

    def add(self, span: Span) -> None:
        """Queue a span. Drop it if too many wait."""
        if self._taken - self._counted.done >= MOST_WAITING:
            self.outcomes.labels("dropped").inc()
            return
        self._taken += 1
        self._processor.on_end(_readable(span, self._resource))

    def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        closing = threading.Thread(target=self._processor.shutdown, daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)


class _Counted(SpanExporter):
    """Counts what an exporter sends, and logs when the collector goes and comes back."""

    def __init__(self, inner: SpanExporter, endpoint: str, outcomes: Counter) -> None:
        self.done = 0  # spans that no longer wait
        self._lost = 0
        self._outcomes = outcomes
        self._inner = inner
        self._endpoint = endpoint
        self._away = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans. Called by the processor's thread."""
        result = SpanExportResult.FAILURE
        try:
            result = self._inner.export(spans)
        finally:
            failed = result is not SpanExportResult.SUCCESS
            self.done += len(spans)
            self._lost += len(spans) * failed
            self._outcomes.labels("failed" if failed else "exported").inc(len(spans))
            self._note(away=failed)
        return result

    def shutdown(self) -> None:
        """End the exporter."""
        self._inner.shutdown()

    def _note(self, *, away: bool) -> None:
        if away and not self._away:
            log.warning("traces.not_taken", endpoint=self._endpoint, effect="spans are lost; nothing else is affected")
        elif self._away and not away:
            log.info("traces.taken_again", endpoint=self._endpoint, lost=self._lost)
        self._away = away


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    """The span as the SDK has it."""
    status = Status(StatusCode.ERROR, span.error) if span.error else Status()
    return ReadableSpan(
        span.name,
        context=_context(span.context),
        parent=None if span.parent is None else _context(span.parent),
        resource=resource,
        attributes={name: value for name, value in span.attributes.items() if value is not None},
        events=[Event(each.name, each.attributes, each.at_ns) for each in span.moments],
        links=[Link(_context(each)) for each in span.links],
        kind=_KINDS[span.kind],
        status=status,
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=_SCOPE,
    )


def _context(context: SpanContext) -> SdkContext:
    flags = TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT)
    return SdkContext(int(context.trace_id, 16), int(context.span_id, 16), is_remote=False, trace_flags=flags)
