"""The spans of this process on their way to a collector. Off, and free, until `configure` finds an endpoint.

As with logging, one recorder serves the whole process.
"""

import atexit
from collections.abc import Iterable
from typing import Protocol

import structlog
from prometheus_client import Counter
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from app.optional_packages import OTEL
from app.settings import Settings
from app.tracing.span import Span

log = structlog.get_logger()

_OUTCOMES = ("exported", "failed", "dropped")


class Sink(Protocol):
    """Takes spans and never waits. `outcomes` counts what became of them, as `no_spans` begins."""

    outcomes: Counter

    def add(self, span: Span) -> None:
        """Take a span, or drop and count it."""

    def close(self) -> None:
        """Send what is left, for a short time at most."""


def no_spans() -> Counter:
    """A counter of spans by what became of them, at zero."""
    meaning = (
        "spans by what became of them: exported; failed: the collector did not take them; dropped: too many waited"
    )
    counter = Counter("slackwater_trace_spans_total", meaning, ["outcome"], registry=None)
    for outcome in _OUTCOMES:
        counter.labels(outcome)
    return counter


class _Process:
    sink: Sink | None = None
    outcomes = no_spans()  # while there is no sink


def configure(settings: Settings, part: str) -> None:
    """Send the spans of this process to the settings' collector, if they name one. Call once, after logging is set up."""
    if not settings.otlp_endpoint:
        return
    if not OTEL.installed:
        log.warning("traces.off", error=f"{OTEL.what} is not installed", remedy=OTEL.remedy)
        return
    from app.tracing.otlp import Exporter

    use(Exporter(settings.otlp_endpoint, part))
    atexit.register(close)
    log.info("traces.on", endpoint=settings.otlp_endpoint)


def use(sink: Sink | None) -> None:
    """Give spans to this sink; None: record none."""
    _Process.sink = sink


def on() -> bool:
    """Whether spans are recorded."""
    return _Process.sink is not None


def record(span: Span) -> None:
    """Send a span, if its context is sampled and spans are recorded."""
    if _Process.sink is not None and span.context.sampled:
        _Process.sink.add(span)


def close() -> None:
    """Send what is left. Nothing is recorded after it."""
    sink, _Process.sink = _Process.sink, None
    if sink is not None:
        sink.close()


class SpanCounts(Collector):
    """The metric of the recorder, for the `/metrics` of a process."""

    def collect(self) -> Iterable[Metric]:
        """One family: spans by what became of them."""
        return (_Process.sink or _Process).outcomes.collect()
